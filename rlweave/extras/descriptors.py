"""Descriptors of the components of this package; `tests/testing/checks/test_check_all.py` runs the checks over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave import ops
from rlweave.components import Policy
from rlweave.extras.adaptation_losses import SquaredErrorLoss, SurrogateLoss
from rlweave.extras.evolution import EvolutionStrategy, NoiseTable
from rlweave.extras.linear_baseline import LinearBaseline
from rlweave.extras.policy_variants import PolicyVariants
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox, IntBox, Space
from rlweave.testing.component_descriptors.common import FEATURES, SEQUENCE, SEQUENCE_FLAGS, floats
from rlweave.testing.descriptors import Descriptor, Registry, ScaleLaw

DESCRIPTORS = Registry()


def add(
    name: str, component: type[Component], make: Callable[[], Component], spaces: dict[str, Space], **options: Any
) -> None:
    """Adds a descriptor; see `Descriptor` for the options."""
    DESCRIPTORS.add(Descriptor(name, component, make, spaces, **options))


class ScaledVariants(Component):
    """A policy, and variants of it that have its weights times factors."""

    def __init__(self) -> None:
        super().__init__("scaled")
        self.policy = Policy([{"type": "dense", "units": 3, "activation": "tanh"}], IntBox(3))
        self.variants = PolicyVariants(self.policy)

    @api
    def act(self, observations: Any) -> Any:
        """Of the policy alone."""
        return self.policy.parameters(observations)

    @api
    def assign(self, factors: Any) -> None:
        """Gives variants their weights."""
        self.variants.assign(self._scaled(factors, self.policy.variables()))

    @api
    def parameters(self, observations: Any) -> Any:
        """Of all variants."""
        return self.variants.parameters(observations)

    @graph_fn(differentiable=False)
    def _scaled(self, factors: Any, variables: Any) -> Any:
        return {
            path: ops.reshape(factors, (-1,) + (1,) * len(cell.shape)) * cell.value for path, cell in variables.items()
        }


add(
    "policy-variants",
    PolicyVariants,
    ScaledVariants,
    {
        "observations": FEATURES,
        "factors": FloatBox(add_batch_rank=3),
        "parameters.observations": FloatBox(shape=(4,), add_batch_rank=3),
    },
    calls=("act", "assign", "parameters"),
    gradients=(),
)
add(
    "noise-table",
    NoiseTable,
    lambda: NoiseTable(40),
    {"offsets": IntBox(38, add_batch_rank=True), "weights": floats()},
    static={"rows": {"length": 3}, "combine": {"length": 3}},
    gradients=(),
)
add(
    "evolution-strategy",
    EvolutionStrategy,
    lambda: EvolutionStrategy(0.1),
    {"centre": FloatBox(shape=(3,)), "noise": floats(3), "signs": floats(), "returns": floats(2)},
    gradients=("perturb",),
)
add(
    "linear-baseline",
    LinearBaseline,
    lambda: LinearBaseline(0.9),
    {
        "observations": FloatBox(shape=(2,), add_batch_rank=True, add_time_rank=True),
        "rewards": SEQUENCE,
        "terminated": SEQUENCE_FLAGS,
        "truncated": SEQUENCE_FLAGS,
    },
    gradients=(),
    scale_laws=(ScaleLaw("advantages", ("rewards",)),),
)
add("squared-error-loss", SquaredErrorLoss, SquaredErrorLoss, {"predictions": FEATURES, "targets": FEATURES})
for _name, _clip in (("surrogate-loss", None), ("surrogate-loss-clipped", 0.2)):
    add(
        _name,
        SurrogateLoss,
        lambda clip=_clip: SurrogateLoss(clip),  # type: ignore[misc]
        {
            "log_probs": floats(low=-2.0, high=0.0),
            "old_log_probs": floats(low=-2.0, high=0.0),
            "advantages": floats(),
        },
        constants={"loss": ("old_log_probs", "advantages")},
    )
