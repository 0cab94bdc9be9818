"""Loops whose bodies convolve on JAX: right, and never with a convolution inside a loop on a CPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.components import SGD, Conv2D
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox

pytest.importorskip("jax")


class Fit(Component):
    """Moves a kernel by gradients of a convolution, in a loop in a loop."""

    def __init__(self, outer: int, inner: int) -> None:
        super().__init__("fit")
        self.outer, self.inner = outer, inner
        self.layer = Conv2D(4, 3, 1, "same", kernel_initializer=0.1, scope="layer")
        self.optimizer = SGD(0.01)

    @api
    def fit(self, images):
        graph.repeat(self.outer, lambda: graph.repeat(self.inner, lambda: self._step(images)))
        return self._loss(self.layer.call(images))

    def _step(self, images):
        self.optimizer.step(self._loss(self.layer.call(images)), self.layer.variables())

    @graph_fn
    def _loss(self, outputs):
        return ops.mean((outputs - 1.0) ** 2)


class Blurred(Fit):
    """Convolves until the image is dark, which nobody knows beforehand."""

    @api
    def fit(self, images):
        return graph.while_(self._is_bright, self._blur, images)

    @graph_fn
    def _is_bright(self, images):
        return ops.max(images) > 0.05

    @graph_fn
    def _blur(self, images):
        return ops.conv2d(images, ops.full((3, 3, 2, 2), 0.04), 1, "same")


def made(component, backend):
    space = FloatBox(shape=(9, 8, 2), low=0.0, high=1.0, add_batch_rank=True)
    return build(component, {"images": space}, backend=backend), space.sample(3, rng=0)


@pytest.mark.parametrize(("outer", "inner"), [(2, 3), (3, 33)])
def test_steps_that_convolve_in_a_loop_are_what_single_steps_are(outer, inner):
    pytest.importorskip("torch")
    executor, images = made(Fit(outer, inner), "jax")
    reference, _ = made(Fit(outer, inner), "torch")
    np.testing.assert_allclose(executor.fit(images), reference.fit(images), rtol=1e-4)
    np.testing.assert_allclose(
        executor.get_weights()["fit/layer/kernel"], reference.get_weights()["fit/layer/kernel"], rtol=1e-4
    )


@pytest.mark.parametrize("component", [Fit(2, 3), Fit(1, 1), Fit(3, 33), Fit(33, 2), Blurred(1, 1)])
def test_no_convolution_is_inside_a_loop_of_a_program_for_cpus(component, monkeypatch):
    import jax

    if jax.default_backend() != "cpu":
        pytest.skip("loops of other devices stay as they are")
    programs = []
    whole = jax.jit

    def noting(function, **options):
        jitted = whole(function, **options)

        def call(*arguments):
            programs.append(jitted.lower(*arguments).compile().as_text())
            return jitted(*arguments)

        return call

    monkeypatch.setattr(jax, "jit", noting)
    executor, images = made(component, "jax")
    executor.fit(images)
    bodies = [match for text in programs for match in re.findall(r"while\(.*body=(%[\w.-]+)", text)]
    text = "\n".join(programs)
    for name in bodies:
        body = re.search(rf"^{re.escape(name)} .*?^}}", text, re.M | re.S)
        assert body is not None, name
        assert " convolution(" not in body.group(), name
    assert bodies or " convolution(" in text


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [(1, 2, "valid"), (2, 1, "same"), (2, 3, "valid"), (3, (2, 1), "same"), (3, 2, "valid"), (8, 4, "valid")],
)
def test_a_convolution_as_a_matrix_product_is_the_convolution(kernel, stride, padding):
    from rlweave.backends.jax_.ops import convolution

    def products(*arguments):
        with convolution.as_matrix_products():
            return convolution.conv2d(*arguments)

    assert_convolves(products, 2, kernel, stride, padding)


@pytest.mark.parametrize("batch", [64, 65, 140, 1100])
def test_a_large_batch_is_convolved_in_slices(batch):
    import jax

    from rlweave.backends.jax_.ops import convolution

    if jax.default_backend() != "cpu":
        pytest.skip("elsewhere the whole batch is faster")
    x = np.zeros((batch, 13, 12, 3), np.float32)
    slice_size = 64 if batch < 1024 else 69
    assert max(np.diff([*convolution._starts_of_slices(batch), batch])) == slice_size
    program = str(jax.make_jaxpr(lambda x: convolution.conv2d(x, np.ones((3, 4, 3, 5), np.float32), 2, "same"))(x))
    assert program.count("dot_general") == (-(-batch // slice_size) if batch > 64 else 0)
    assert program.count("conv_general_dilated[") == (0 if batch > 64 else 1)
    assert_convolves(convolution.conv2d, batch, 3, 2, "same")


def assert_convolves(convolution, batch, kernel, stride, padding):
    """Values and both gradients are those of `lax`."""
    import jax

    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, 13, 12, 3)).astype(np.float32)
    filters = rng.normal(size=(kernel, min(kernel + 1, 8), 3, 5)).astype(np.float32)

    def usual(x, filters):
        steps = stride if isinstance(stride, tuple) else (stride, stride)
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, filters, steps, padding.upper(), dimension_numbers=layout)

    expected, transposed = jax.vjp(usual, x, filters)
    result, transposed_products = jax.vjp(lambda x, filters: convolution(x, filters, stride, padding), x, filters)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    for gradient, right in zip(transposed_products(result), transposed(expected), strict=True):
        np.testing.assert_allclose(gradient, right, rtol=1e-3, atol=1e-3)
