"""Arguments that only functions on the host read: no framework converts or copies them, and callers may refill them."""

import numpy as np
import pytest

from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox


class Keeper(Component):
    """Keeps what it was given last on the host; `add` computes where the framework does."""

    def create_variables(self, x):
        self.last = self.variable("last", (2,), 0, trainable=False)

    @api
    def keep(self, x):
        """Keeps rows, and hands them back."""
        return self._keep(x)

    @api
    def both(self, x):
        """Keeps rows, and doubles them."""
        self._keep(x)
        return self._double(x)

    @graph_fn(host=True, differentiable=False)
    def _keep(self, x):
        self.last.assign(x[0])
        return x

    @graph_fn
    def _double(self, x):
        return x + x


@pytest.fixture(scope="module", params=["numpy", "torch", "jax"])
def keeper(request):
    return build(Keeper(scope="keeper"), {"x": FloatBox(shape=(2,), add_batch_rank=True)}, backend=request.param)


@pytest.mark.parametrize("method", ["keep", "both"])
def test_callers_may_refill_what_was_kept_on_the_host(keeper, method) -> None:
    given = np.array([[1.0, 2.0]], np.float32)
    result = getattr(keeper, method)(given)
    lazy = getattr(keeper, method)(given, as_numpy=False)
    given[:] = 7.0
    times = 2.0 if method == "both" else 1.0
    for found in (keeper.get_weights("keeper/last")["keeper/last"] * times, result[0], np.asarray(lazy)[0]):
        np.testing.assert_array_equal(found, np.array([1.0, 2.0]) * times)


def test_arguments_that_only_the_host_reads_are_not_converted(keeper) -> None:
    for conversion in ("convert_nested(", "from_numpy(", "share(", "staged("):
        assert conversion not in keeper.code("keep")
    assert keeper.backend.name == "numpy" or any(name in keeper.code("both") for name in ("share(", "staged("))
