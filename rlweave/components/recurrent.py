"""Recurrent layers over time-major sequences."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.components.initializers import InitializerSpec, make_initializer
from rlweave.components.layers import float_features
from rlweave.errors import BuildError, SpecError
from rlweave.graph import Component, api, graph_fn, register

FORGET_BIAS = 1.0
"""Added to the forget gate before its sigmoid, besides the learned bias (Jozefowicz et al. 2015)."""


@register("lstm")
class LSTM(Component):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000).

    The last axis of kernels and bias holds the four gates in the order i, g, f, o: input, candidate, forget, output
    (frameworks differ; weights of others have to be reordered). With z = x W + h U + b:

        c' = sigmoid(z_f + 1) * c + sigmoid(z_i) * tanh(z_g),    h' = sigmoid(z_o) * tanh(c').

    A learner has to distinguish two kinds of episode ends: `episode_start` resets the state here, wherever a new
    episode begins (after termination and truncation alike); which values bootstrap is another question.

    Args:
        units: Size of hidden state and cell.
        kernel_initializer: For W, (F, 4 units); see `make_initializer`. None: variance 1 / F.
        recurrent_initializer: For U, (units, 4 units).
        scope: Name within the owner.
    """

    def __init__(
        self,
        units: int,
        kernel_initializer: InitializerSpec = None,
        recurrent_initializer: InitializerSpec = "orthogonal",
        scope: str = "lstm",
    ) -> None:
        super().__init__(scope)
        if isinstance(units, bool) or not isinstance(units, int) or units < 1:
            raise SpecError("an LSTM needs a whole number of units", where=scope, received=f"units={units!r}")
        self.units = units
        make_initializer(kernel_initializer)
        make_initializer(recurrent_initializer)
        self.kernel_initializer, self.recurrent_initializer = kernel_initializer, recurrent_initializer

    def create_variables(self, inputs: Any) -> None:
        """W (F, 4 units), U (units, 4 units), b (4 units,)."""
        space = float_features(inputs, self.path)
        if len(space.shape) != 1 or space.time is None or space.batch is None:
            raise BuildError(
                "an LSTM takes time-major sequences (T, B, F)",
                where=self.path,
                received=repr(space),
                fix="a space with one feature axis, a batch rank and a time rank",
            )
        features = space.shape[0]
        self.kernel = self.variable("kernel", (features, 4 * self.units), make_initializer(self.kernel_initializer))
        self.recurrent_kernel = self.variable(
            "recurrent_kernel", (self.units, 4 * self.units), make_initializer(self.recurrent_initializer)
        )
        self.bias = self.variable("bias", (4 * self.units,), 0.0)

    @api
    def call(self, inputs: Any, state: Any, episode_start: Any) -> Any:
        """Runs over a sequence.

        Args:
            inputs: Floats, (T, B, F).
            state: State before the first step, `{"hidden": (B, units), "cell": (B, units)}`.
            episode_start: Bool (T, B). Where True the state is zero before this step, whatever came before.

        Returns:
            Hidden states (T, B, units), and the state after the last step.
        """
        outputs, hidden, cell = self._sequence(inputs, state["hidden"], state["cell"], episode_start)
        return outputs, {"hidden": hidden, "cell": cell}

    @api(static=("batch_size",))
    def initial_state(self, batch_size: int) -> Any:
        """The state at the start of an episode: zeros, `{"hidden": (B, units), "cell": (B, units)}`.

        Args:
            batch_size: Static.
        """
        return {"hidden": self._zeros(batch_size), "cell": self._zeros(batch_size)}

    @graph_fn
    def _zeros(self, batch_size: int) -> Any:
        return ops.zeros((batch_size, self.units))

    @graph_fn
    def _sequence(self, inputs: Any, hidden: Any, cell: Any, episode_start: Any) -> Any:
        units, recurrent_kernel = self.units, self.recurrent_kernel.value
        projected = ops.linear(inputs, self.kernel.value, self.bias.value)  # all steps at once

        def step(carry: Any, x: Any) -> Any:
            (h, c), (z, start) = carry, x
            h, c = ops.where(start[:, None], 0.0, h), ops.where(start[:, None], 0.0, c)
            z = z + ops.matmul(h, recurrent_kernel)
            i, g, f, o = (z[:, k * units : (k + 1) * units] for k in range(4))
            c = ops.sigmoid(f + FORGET_BIAS) * c + ops.sigmoid(i) * ops.tanh(g)
            h = ops.sigmoid(o) * ops.tanh(c)
            return (h, c), h

        (hidden, cell), outputs = ops.scan(step, (hidden, cell), (projected, episode_start))
        return outputs, hidden, cell
