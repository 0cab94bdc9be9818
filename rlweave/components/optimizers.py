"""Optimizers: one component, one meaning of each setting on every backend.

| setting | meaning |
|---|---|
| `learning_rate` | a number, or a schedule (see `rlweave.components.schedules`) of an absolute counter |
| `max_grad_norm` | gradients are scaled down together to this Euclidean norm; None: never |
| `epsilon` | added to the root of the second moment (outside of the root), as in `torch.optim` |
| `weight_decay` | decoupled from the gradient, times the learning rate (Loshchilov and Hutter 2019), in `AdamW` only |
| bias correction | as in the paper: both moments of Adam are divided by 1 - beta^step before they are used |

These are the meanings of `torch.optim`; `optax.rmsprop` differs (epsilon inside of the root unless
`eps_in_sqrt=False`, the learning rate inside of the momentum).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from rlweave import ops
from rlweave.components.schedules import Constant, Number, Schedule, make_schedule
from rlweave.errors import BuildError
from rlweave.graph import Component, api, gradients, graph_fn, register
from rlweave.settings.ranges import FRACTION, NOT_NEGATIVE, POSITIVE

ScheduleLike = Number | Mapping[str, Any] | Sequence[Any] | Schedule


class Optimizer(Component):
    """Base of the optimizers: differentiates a loss and moves variables.

    Its slots are variables that cannot be trained, named by the path of what they belong to
    (`<optimizer>/<variable>/mean`), and `<optimizer>/steps`, the number of steps so far (int32). They are part of
    checkpoints and move between backends. They live on the device of these variables, wherever the optimizer is
    placed. One optimizer serves one collection of variables, all on one device.

    Args:
        learning_rate: A number above 0, or a schedule of the number of steps (or of `count`, see `step`).
        max_grad_norm: Largest norm of all gradients together; None does not clip.
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
    """

    #: Names of the slots, one array of the variable's shape each.
    slot_names: tuple[str, ...] = ()
    #: Where `step` averages gradients over the ranks of a training, see `Ranks`; None: there is one.
    ranks: Any = None

    def __init__(
        self, learning_rate: ScheduleLike, max_grad_norm: float | None = None, scope: str = "optimizer"
    ) -> None:
        super().__init__(scope, trainable=False)
        self.learning_rate = make_schedule(learning_rate)
        self.max_grad_norm = max_grad_norm
        positive = isinstance(self.learning_rate, Constant)  # a schedule may end at 0
        (POSITIVE if positive else NOT_NEGATIVE).check_schedule("learning_rate", self.learning_rate, scope)
        POSITIVE.check("max_grad_norm", max_grad_norm, scope, optional=True)

    def create_variables(self, variables: Any) -> None:
        first = next(iter(variables), None)
        self.steps = self.variable("steps", (), 0, trainable=False, dtype="int32", beside=first)
        self.slots = {name: [self._slot(name, *item) for item in variables.items()] for name in self._used_slots()}

    def _slot(self, name: str, path: str, variable: Any) -> Any:
        """A variable beside the one that it belongs to."""
        return self.variable(
            f"{path}/{name}",
            variable.space,
            0.0,
            trainable=False,
            axis_order=variable.axis_order,
            beside=variable,
        )

    @api(static="allow_unused")
    def step(self, loss: Any, variables: Any, count: Any = None, allow_unused: bool = False) -> Any:
        """Moves variables down the gradient of a loss.

        Args:
            loss: A scalar value.
            variables: Collection of what is trained: `policy.variables()`.
            count: The absolute counter that a scheduled learning rate is a function of, a scalar value (environment
                steps, say). None: the steps of this optimizer before this one.
            allow_unused: The loss need not depend on all variables; the others are moved by gradients of zero.

        Returns:
            Scalars for `graph.metrics`, as `apply` does.

        Raises:
            BuildError: There are no variables, or the loss does not depend on one of them.
        """
        slopes = gradients(loss, variables, allow_unused)
        return self.apply(slopes if self.ranks is None else self.ranks.mean(slopes), variables, count)

    @api
    def apply(self, gradients: Any, variables: Any, count: Any = None) -> Any:
        """Moves variables by gradients that were computed (or averaged) elsewhere.

        Args:
            gradients: Dict of gradients by variable path, as `graph.gradients` returns it, or a sequence in the
                order of the variables.
            variables: Collection of what is trained.
            count: As in `step`.

        Returns:
            Scalars for `graph.metrics`: "learning_rate", and with `max_grad_norm` "gradient_norm", before clipping.

        Raises:
            BuildError: The gradients are not those of these variables, or a constant learning rate gets a count.
        """
        paths = list(variables.keys())
        if count is not None and isinstance(self.learning_rate, Constant):
            raise BuildError(
                "a constant learning rate does not depend on a count",
                where=self.path,
                fix="leave count out, or give learning_rate a schedule",
            )
        if isinstance(gradients, dict):
            if set(gradients) != set(paths):
                raise BuildError(
                    "gradients and variables have different paths",
                    where=self.path,
                    received=f"gradients of {sorted(gradients)}, variables {sorted(paths)}",
                    fix="pass the collection that the gradients were taken by",
                )
            gradients = [gradients[path] for path in paths]
        elif isinstance(gradients, list | tuple) and len(gradients) != len(paths):
            raise BuildError(
                "gradients and variables differ in number",
                where=self.path,
                received=f"{len(gradients)} gradients, {len(paths)} variables",
                fix="pass one gradient for each variable",
            )
        learning_rate, norm = self._apply(gradients, variables, count)
        if isinstance(self.learning_rate, Constant):
            learning_rate = self.learning_rate.value
        return {"learning_rate": learning_rate} | ({} if self.max_grad_norm is None else {"gradient_norm": norm})

    @graph_fn(differentiable=False, returns=2)
    def _apply(self, gradients: Any, variables: Any, count: Any) -> Any:
        steps_before = self.steps.value
        step = steps_before + 1
        if isinstance(self.learning_rate, Constant):
            learning_rate: Any = self.learning_rate.value
        else:
            learning_rate = self.learning_rate.in_graph(steps_before if count is None else count, ops)
        norm = None
        if self.max_grad_norm is not None:
            gradients, norm = ops.global_norm_clip(gradients, self.max_grad_norm)
        parameters = [cell.value for cell in variables]
        slots = {name: [cell.value for cell in slot] for name, slot in self.slots.items()}
        new_parameters, new_slots = self._update(parameters, gradients, slots, step, learning_rate, variables.donate)
        self.steps.assign(step)
        _assign(variables, parameters, new_parameters)
        for name, slot in self.slots.items():
            _assign(slot, slots[name], new_slots[name])
        return None if isinstance(self.learning_rate, Constant) else learning_rate, norm

    @abstractmethod
    def _update(
        self,
        parameters: list[Any],
        gradients: list[Any],
        slots: dict[str, list[Any]],
        step: Any,
        learning_rate: Any,
        donate: bool,
    ) -> tuple[list[Any], dict[str, list[Any]]]:
        """New parameters and slots.

        Args:
            parameters: Arrays of the variables.
            gradients: Their gradients, clipped.
            slots: Arrays of each slot.
            step: The number of this step, an int32 scalar, 1 for the first.
            learning_rate: A number or a float32 scalar.
            donate: Parameters and slots may be overwritten.
        """

    def _used_slots(self) -> tuple[str, ...]:
        return self.slot_names


def _assign(cells: Any, before: Sequence[Any], after: Sequence[Any]) -> None:
    """Gives variables new values, unless the old arrays were overwritten."""
    if after is not before:
        for cell, value in zip(cells, after, strict=True):
            cell.assign(value)


@register("sgd")
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and Nesterov's variant of it if wanted.

    v = momentum * v + g; p -= learning_rate * v, or with `nesterov` p -= learning_rate * (g + momentum * v).

    Args:
        learning_rate: See `Optimizer`.
        momentum: At least 0, below 1.
        nesterov: Needs a momentum.
        max_grad_norm: See `Optimizer`.
        scope: Name within the owner.
    """

    slot_names = ("velocity",)

    def __init__(
        self,
        learning_rate: ScheduleLike = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        max_grad_norm: float | None = None,
        scope: str = "optimizer",
    ) -> None:
        super().__init__(learning_rate, max_grad_norm, scope)
        FRACTION.check("momentum", momentum, scope)
        if nesterov:
            POSITIVE.check("momentum (with nesterov)", momentum, scope)
        self.momentum, self.nesterov = momentum, nesterov

    def _used_slots(self) -> tuple[str, ...]:
        return self.slot_names if self.momentum else ()

    def _update(
        self, parameters: Any, gradients: Any, slots: Any, step: Any, learning_rate: Any, donate: bool
    ) -> tuple[list[Any], dict[str, list[Any]]]:
        parameters, velocities = ops.sgd_update(
            parameters, gradients, slots.get("velocity", []), learning_rate, self.momentum, self.nesterov, donate
        )
        return parameters, {"velocity": velocities}


@register("adam")
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1).

    Args:
        learning_rate: See `Optimizer`.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of squared gradients.
        epsilon: Added outside of the root. (PPO's published results use 1e-5.)
        max_grad_norm: See `Optimizer`.
        scope: Name within the owner.
    """

    slot_names = ("mean", "variance")

    def __init__(
        self,
        learning_rate: ScheduleLike = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        max_grad_norm: float | None = None,
        scope: str = "optimizer",
    ) -> None:
        super().__init__(learning_rate, max_grad_norm, scope)
        FRACTION.check("beta1", beta1, scope)
        FRACTION.check("beta2", beta2, scope)
        POSITIVE.check("epsilon", epsilon, scope)
        self.beta1, self.beta2, self.epsilon, self.weight_decay = beta1, beta2, epsilon, 0.0

    def _update(
        self, parameters: Any, gradients: Any, slots: Any, step: Any, learning_rate: Any, donate: bool
    ) -> tuple[list[Any], dict[str, list[Any]]]:
        parameters, means, variances = ops.adam_update(
            parameters,
            gradients,
            slots["mean"],
            slots["variance"],
            step,
            learning_rate,
            self.beta1,
            self.beta2,
            self.epsilon,
            self.weight_decay,
            donate,
        )
        return parameters, {"mean": means, "variance": variances}


@register("adamw")
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    p -= learning_rate * (mhat / (sqrt(vhat) + epsilon) + weight_decay * p).

    Args:
        learning_rate: See `Optimizer`.
        weight_decay: At least 0.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of squared gradients.
        epsilon: Added outside of the root.
        max_grad_norm: See `Optimizer`.
        scope: Name within the owner.
    """

    def __init__(
        self,
        learning_rate: ScheduleLike = 1e-3,
        weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        max_grad_norm: float | None = None,
        scope: str = "optimizer",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, max_grad_norm, scope)
        NOT_NEGATIVE.check("weight_decay", weight_decay, scope)
        self.weight_decay = weight_decay


@register("rmsprop")
class RMSProp(Optimizer):
    """RMSProp (Hinton 2012), plain or centered (Graves 2013), with or without momentum.

    s = decay * s + (1 - decay) * g^2; u = g / (sqrt(s) + epsilon); v = momentum * v + u; p -= learning_rate * v.
    Centered: s less the square of the mean gradient stands under the root.

    Args:
        learning_rate: See `Optimizer`.
        decay: Of the means (`alpha` in torch).
        epsilon: Added outside of the root.
        momentum: At least 0, below 1.
        centered: Divide by the standard deviation of gradients instead of their root mean square.
        max_grad_norm: See `Optimizer`.
        scope: Name within the owner.
    """

    slot_names = ("square", "velocity", "mean")

    def __init__(
        self,
        learning_rate: ScheduleLike = 1e-3,
        decay: float = 0.99,
        epsilon: float = 1e-8,
        momentum: float = 0.0,
        centered: bool = False,
        max_grad_norm: float | None = None,
        scope: str = "optimizer",
    ) -> None:
        super().__init__(learning_rate, max_grad_norm, scope)
        FRACTION.check("decay", decay, scope)
        FRACTION.check("momentum", momentum, scope)
        POSITIVE.check("epsilon", epsilon, scope)
        self.decay, self.epsilon, self.momentum, self.centered = decay, epsilon, momentum, centered

    def _used_slots(self) -> tuple[str, ...]:
        used = {"square": True, "velocity": self.momentum > 0, "mean": self.centered}
        return tuple(name for name in self.slot_names if used[name])

    def _update(
        self, parameters: Any, gradients: Any, slots: Any, step: Any, learning_rate: Any, donate: bool
    ) -> tuple[list[Any], dict[str, list[Any]]]:
        parameters, squares, velocities, means = ops.rmsprop_update(
            parameters,
            gradients,
            slots["square"],
            slots.get("velocity", []),
            slots.get("mean", []),
            learning_rate,
            self.decay,
            self.epsilon,
            self.momentum,
            donate,
        )
        return parameters, {"square": squares, "velocity": velocities, "mean": means}
