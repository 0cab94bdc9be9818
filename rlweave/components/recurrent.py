"""Recurrent layers, over time-major sequences or one step at a time."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from rlweave import ops
from rlweave.components.initializers import InitializerSpec, make_initializer
from rlweave.components.layers import float_features
from rlweave.errors import BuildError, SpecError
from rlweave.graph import Component, api, graph_fn, register
from rlweave.graph.ir import Unknown, Value
from rlweave.spaces import Dict, FloatBox
from rlweave.tree import has_leaf

FORGET_BIAS = 1.0
"""Added to the LSTM's forget gate before its sigmoid, besides the learned bias (Jozefowicz et al. 2015)."""

State = dict[str, Any]


class RecurrentLayer(Component):
    """What all recurrent layers share; a sub-class says what one step is.

    A network with such a layer makes an agent recurrent (`Network.is_recurrent`).

    A learner has to distinguish two kinds of episode ends: `episode_start` resets the state here, wherever a new
    episode begins (after termination and truncation alike); which values bootstrap is another question.

    Args:
        units: Size of the hidden state, which is also the output.
        kernel_initializer: For the kernel on inputs, (F, gates * units); see `make_initializer`. None: variance 1 / F.
        recurrent_initializer: For the kernel on hidden states, (units, gates * units).
        scope: Name within the owner.

    Raises:
        SpecError: No whole number of units, or an unknown initializer.
    """

    is_recurrent: ClassVar[bool] = True
    #: Names of the parts of the state, (B, units) each; "hidden" is the output of the last step.
    state_names: ClassVar[tuple[str, ...]] = ("hidden",)
    #: How many gates stand side by side in kernels and bias.
    gates: ClassVar[int]

    def __init__(
        self,
        units: int,
        kernel_initializer: InitializerSpec = None,
        recurrent_initializer: InitializerSpec = "orthogonal",
        scope: str = "",
    ) -> None:
        super().__init__(scope)
        if isinstance(units, bool) or not isinstance(units, int) or units < 1:
            raise SpecError(
                f"{type(self).__name__} needs a whole number of units", where=scope, received=f"units={units!r}"
            )
        self.units = units
        make_initializer(kernel_initializer)
        make_initializer(recurrent_initializer)
        self.kernel_initializer, self.recurrent_initializer = kernel_initializer, recurrent_initializer

    @property
    def recurrent_space(self) -> Dict:
        """Space of the state of one sequence, without ranks."""
        return Dict({name: FloatBox(shape=(self.units,)) for name in self.state_names})

    def create_variables(self, inputs: Any) -> None:
        """Kernel W (F, gates * units), recurrent kernel U (units, gates * units), bias b (gates * units,)."""
        space = float_features(inputs, self.path)
        if len(space.shape) != 1 or space.batch is None:
            raise BuildError(
                "a recurrent layer takes time-major sequences (T, B, F), or single steps (B, F)",
                where=self.path,
                received=repr(space),
                fix="a space with one feature axis, a batch rank and (for sequences) a time rank",
            )
        (features,), columns = space.feature_shape, self.gates * self.units
        self.kernel = self.variable("kernel", (features, columns), make_initializer(self.kernel_initializer))
        self.recurrent_kernel = self.variable(
            "recurrent_kernel", (self.units, columns), make_initializer(self.recurrent_initializer)
        )
        self.bias = self.variable("bias", (columns,), 0.0)

    @api
    def call(self, inputs: Any, state: Any, episode_start: Any) -> Any:
        """Runs over sequences, or a single step where there is no time axis.

        Args:
            inputs: Floats, (T, B, F) or (B, F).
            state: State before the first step, (B, units) by name.
            episode_start: Bool (T, B) or (B,). Where True the state is zero before this step, whatever came before.

        Returns:
            Hidden states (T, B, units) or (B, units), and the state after the last step.

        Raises:
            BuildError: The axes of inputs and `episode_start` do not belong together.
        """
        if has_leaf((inputs, episode_start), Value) and not has_leaf((inputs, episode_start), Unknown):
            self._check_axes(inputs, episode_start)
        if is_single_step(episode_start):
            return self._step(inputs, state, episode_start)
        return self._sequence(inputs, state, episode_start)

    @api
    def look_ahead(self, inputs: Any, next_inputs: Any, state: Any, episode_start: Any) -> Any:
        """Runs over sequences, and from each step tries one more without going on from there.

        What bootstraps needs it: the value of the observation that step t *led to* belongs to the state after step t
        of the same episode, also where that ended and the sequence goes on with another one.

        Args:
            inputs: Floats, (T, B, F).
            next_inputs: What followed each step within its episode, (T, B, F).
            state: State before the first step.
            episode_start: Bool (T, B), of `inputs`.

        Returns:
            Hidden states (T, B, units); those of the additional steps, (T, B, units); the state after the last step.
        """
        return self._look_ahead(inputs, next_inputs, state, episode_start)

    @api(static=("batch_size",))
    def initial_state(self, batch_size: int) -> Any:
        """The state at the start of an episode: zeros, (B, units) by name.

        Args:
            batch_size: Static.
        """
        return {name: self._zeros(batch_size) for name in self.state_names}

    def _check_axes(self, inputs: Value, episode_start: Value) -> None:
        if len(inputs.space.axes) != len(episode_start.space.axes) + 1:
            raise BuildError(
                "a recurrent layer takes time-major sequences (T, B, F) with episode starts (T, B), or a step of each",
                where=f"{self.path}.call",
                received=f"{inputs.space!r}, episode starts {episode_start.space!r}",
                fix="give both a time rank, or none of them",
            )

    # -- what a step is ------------------------------------------------------------------------------------------

    @abstractmethod
    def _weights(self) -> tuple[Any, ...]:
        """The weights that `_advance` needs, read once for all steps."""

    @abstractmethod
    def _advance(self, projected: Any, state: State, weights: tuple[Any, ...]) -> State:
        """The state after a step.

        Args:
            projected: x W + b, (..., gates * units).
            state: Before the step, (..., units) by name.
            weights: See `_weights`.
        """

    # -- graph functions -----------------------------------------------------------------------------------------

    @graph_fn
    def _zeros(self, batch_size: int) -> Any:
        return ops.zeros((batch_size, self.units))

    @graph_fn(returns=2)
    def _sequence(self, inputs: Any, state: State, episode_start: Any) -> Any:
        weights = self._weights()

        def step(before: State, x: Any) -> Any:
            projected, start = x
            after = self._advance(projected, _restarted(before, start), weights)
            return after, after["hidden"]

        projected = ops.linear(inputs, self.kernel.value, self.bias.value)  # all steps at once
        last, outputs = ops.scan(step, state, (projected, episode_start))
        return outputs, last

    @graph_fn(returns=2)
    def _step(self, inputs: Any, state: State, episode_start: Any) -> Any:
        projected = ops.linear(inputs, self.kernel.value, self.bias.value)
        after = self._advance(projected, _restarted(state, episode_start), self._weights())
        return after["hidden"], after

    @graph_fn(returns=3)
    def _look_ahead(self, inputs: Any, next_inputs: Any, state: State, episode_start: Any) -> Any:
        weights, kernel, bias = self._weights(), self.kernel.value, self.bias.value

        def step(before: State, x: Any) -> Any:
            projected, start = x
            after = self._advance(projected, _restarted(before, start), weights)
            return after, after

        last, states = ops.scan(step, state, (ops.linear(inputs, kernel, bias), episode_start))
        following = self._advance(ops.linear(next_inputs, kernel, bias), states, weights)
        return states["hidden"], following["hidden"], last


def is_single_step(episode_start: Any) -> bool:
    """Whether there is one step, (B,), and no time axis (while a graph is traced)."""
    return isinstance(episode_start, Value) and len(episode_start.space.axes) == 1


def _restarted(state: State, episode_start: Any) -> State:
    """The state, zero where an episode starts."""
    start = episode_start[:, None]
    return {name: ops.where(start, 0.0, value) for name, value in state.items()}


@register("lstm")
class LSTM(RecurrentLayer):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000).

    The last axis of kernels and bias holds the four gates in the order i, g, f, o: input, candidate, forget, output
    (frameworks differ; weights of others have to be reordered). With z = x W + h U + b:

        c' = sigmoid(z_f + 1) * c + sigmoid(z_i) * tanh(z_g),    h' = sigmoid(z_o) * tanh(c').

    The state is `{"hidden": (B, units), "cell": (B, units)}`.

    Args:
        units: Size of hidden state and cell.
        kernel_initializer: For W, (F, 4 units); see `make_initializer`. None: variance 1 / F.
        recurrent_initializer: For U, (units, 4 units).
        scope: Name within the owner.

    Raises:
        SpecError: See `RecurrentLayer`.
    """

    state_names = ("hidden", "cell")
    gates = 4

    def __init__(
        self,
        units: int,
        kernel_initializer: InitializerSpec = None,
        recurrent_initializer: InitializerSpec = "orthogonal",
        scope: str = "lstm",
    ) -> None:
        super().__init__(units, kernel_initializer, recurrent_initializer, scope)

    def _weights(self) -> tuple[Any, ...]:
        return (self.recurrent_kernel.value,)

    def _advance(self, projected: Any, state: State, weights: tuple[Any, ...]) -> State:
        units = self.units
        z = projected + ops.matmul(state["hidden"], weights[0])
        i, g, f, o = (z[..., k * units : (k + 1) * units] for k in range(4))
        cell = ops.sigmoid(f + FORGET_BIAS) * state["cell"] + ops.sigmoid(i) * ops.tanh(g)
        return {"hidden": ops.sigmoid(o) * ops.tanh(cell), "cell": cell}


@register("gru")
class GRU(RecurrentLayer):
    """Gated recurrent unit (Cho et al. 2014), in the variant of cuDNN, torch and Flax.

    The last axis of kernels and bias holds the three gates in the order r, z, n: reset, update, candidate. With
    a = x W + b and u = h U:

        r = sigmoid(a_r + u_r),  z = sigmoid(a_z + u_z),  n = tanh(a_n + r * (u_n + c)),  h' = (1 - z) * n + z * h.

    The reset gate acts on the product with the recurrent kernel (and on its own bias c), so that all three products
    are one; in the paper it acts on h before the product. In the paper's own notation z and 1 - z are swapped.

    The state is `{"hidden": (B, units)}`.

    Args:
        units: Size of the hidden state.
        kernel_initializer: For W, (F, 3 units); see `make_initializer`. None: variance 1 / F.
        recurrent_initializer: For U, (units, 3 units).
        scope: Name within the owner.

    Raises:
        SpecError: See `RecurrentLayer`.
    """

    gates = 3

    def __init__(
        self,
        units: int,
        kernel_initializer: InitializerSpec = None,
        recurrent_initializer: InitializerSpec = "orthogonal",
        scope: str = "gru",
    ) -> None:
        super().__init__(units, kernel_initializer, recurrent_initializer, scope)

    def create_variables(self, inputs: Any) -> None:
        """As `RecurrentLayer`, and the bias c (units,) of the candidate's recurrent part."""
        super().create_variables(inputs)
        self.candidate_bias = self.variable("candidate_bias", (self.units,), 0.0)

    def _weights(self) -> tuple[Any, ...]:
        return self.recurrent_kernel.value, self.candidate_bias.value

    def _advance(self, projected: Any, state: State, weights: tuple[Any, ...]) -> State:
        units, hidden = self.units, state["hidden"]
        recurrent_kernel, candidate_bias = weights
        u = ops.matmul(hidden, recurrent_kernel)
        gates = ops.sigmoid(projected[..., : 2 * units] + u[..., : 2 * units])
        reset, update = gates[..., :units], gates[..., units:]
        candidate = ops.tanh(projected[..., 2 * units :] + reset * (u[..., 2 * units :] + candidate_bias))
        return {"hidden": (1.0 - update) * candidate + update * hidden}
