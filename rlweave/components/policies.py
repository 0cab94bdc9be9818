"""Policies: from observations of any space to actions of any space, stochastic or by Q-values."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlweave import ops
from rlweave.components.action_distribution import Joint
from rlweave.components.action_leaves import ActionLeaf
from rlweave.components.action_masks import MaskUser, check_mask_leaf
from rlweave.components.distributions import MASKED
from rlweave.components.encoders import HasEncoder, make_encoder
from rlweave.components.initializers import InitializerSpec, orthogonal_spec
from rlweave.components.layers import Dense
from rlweave.components.network import NetworkSpec
from rlweave.components.scopes import scope_of_path
from rlweave.errors import SpecError
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import FINITE
from rlweave.spaces import Space


class HasHeads(MaskUser, HasEncoder):
    """Components with an encoder, and a head for each leaf of the action space."""

    action_space: Space
    leaves: Sequence[ActionLeaf]
    heads: dict[str, Any]

    def _make_heads(
        self, outputs: Callable[[ActionLeaf], int], kernel_initializer: InitializerSpec = None
    ) -> dict[str, Any]:
        """A head by path of its leaf, with as many outputs as the leaf needs."""
        return {
            leaf.path: Dense(
                outputs(leaf), kernel_initializer=kernel_initializer, scope=scope_of_path("head", leaf.path)
            )
            for leaf in self.leaves
        }

    def _leaf(self, path: str) -> ActionLeaf:
        return next(leaf for leaf in self.leaves if leaf.path == path)

    @graph_fn
    def _shaped(self, outputs: Any, path: str) -> Any:
        """Outputs of a head, (..., size), by component: (..., *shape)."""
        return ops.reshape(outputs, (*outputs.shape[:-1], *self._leaf(path).shape))


class ActsByDistribution(HasHeads):
    """Components whose heads give the parameters of an action distribution, nested like the action space."""

    distribution: Any

    @abstractmethod
    def parameters_of(self, features: Any, observations: Any) -> Any:
        """Parameters from features (..., F) that the encoder made of the observations."""

    @api
    def parameters(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """Parameters of the action distribution.

        Args:
            observations: Nested, (..., *shape); of recurrent networks (T, B, *shape) or (B, *shape).
            recurrent_state: As in `features`, also for the other methods.
            episode_start: As in `features`, also for the other methods.

        Returns:
            Nested like the action space; see the distribution.
        """
        features, _ = self.features(observations, recurrent_state, episode_start)
        return self.parameters_of(features, observations)

    @api
    def mode(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """The likeliest actions: nested observations (B, *shape) to nested actions (B, *shape)."""
        return self.distribution.mode(self.parameters(observations, recurrent_state, episode_start))

    @api
    def env_actions(self, actions: Any) -> Any:
        """Actions as the environment takes them; see `ActionDistribution.env_actions`."""
        return self.distribution.env_actions(actions)

    @api
    def own_actions(self, actions: Any) -> Any:
        """The policy's own numbers for actions of the environment; see `ActionDistribution.own_actions`."""
        return self.distribution.own_actions(actions)


@register("policy")
class Policy(ActsByDistribution, Component):
    """A stochastic policy: an encoder, and for each leaf of the action space a head that gives its distribution.

    See `Joint` for the parameters. Actions are what the distribution gives, the policy's own numbers: integers are
    indices from 0, floats are neither clipped nor scaled. `env_actions` does that for the environment;
    log-probabilities and memories want the actions before that.

    Args:
        network: Layers over the encoded observation (see `NetworkSpec`), an `ObservationEncoder`, or `shared(encoder)`.
        action_space: Any nested space of integers with a range, booleans and floats.
        image_network: Layers over images, see `ObservationEncoder`.
        observation_space: The observation space, see `ObservationEncoder`.
        initializer: "orthogonal": kernels of hidden layers are orthogonal with gain sqrt(2), those of heads with gain
            0.01, as PPO's published runs have it ("What matters in on-policy RL", Andrychowicz et al. 2021, finds the
            small last layer to matter). None: each layer's own default.
        log_std: "variable": one free logarithm of the standard deviation per action component (PPO).
            "head": a function of the state (SAC).
        initial_log_std: Where the free one starts.
        squash: See `Joint`.
        mask_leaf: Path of the leaf of observations that says which actions are allowed (bool, (..., N), for actions of
            which one of N is chosen); the others have probability 0. None: all are.
        scope: Name within the owner.

    Raises:
        SpaceError: An action space without actions, or with a leaf that no distribution fits.
        SpecError: Unknown options.
    """

    def __init__(
        self,
        network: NetworkSpec,
        action_space: Space | Mapping[str, Any],
        image_network: NetworkSpec = None,
        observation_space: Space | Mapping[str, Any] | None = None,
        initializer: str | None = None,
        log_std: str = "variable",
        initial_log_std: float = 0.0,
        squash: bool = False,
        mask_leaf: str | None = None,
        scope: str = "policy",
    ) -> None:
        super().__init__(scope)
        if log_std not in ("variable", "head"):
            raise SpecError("unknown kind of log_std", received=repr(log_std), fix="'variable' or 'head'")
        FINITE.check("initial_log_std", initial_log_std, scope)
        self.network = make_encoder(network, image_network, observation_space, hidden_initializer(initializer))
        self.distribution = Joint(action_space, squash, scope="distribution")
        self.action_space, self.leaves = self.distribution.action_space, self.distribution.leaves
        self.mask_leaf = mask_leaf
        check_mask_leaf(mask_leaf, self.leaves, observation_space, scope)
        self.log_std, self.initial_log_std = log_std, float(initial_log_std)
        gain = None if initializer is None else orthogonal_spec(0.01)
        self.heads = self._make_heads(lambda leaf: _outputs(leaf, log_std), gain)

    def create_variables(self) -> None:
        """The free logarithms of standard deviations, (*shape) each."""
        self.log_stds = {
            leaf.path: self.variable(scope_of_path("log_std", leaf.path), leaf.shape, self.initial_log_std)
            for leaf in self.leaves
            if leaf.kind == "normal" and self.log_std == "variable"
        }

    @api
    def parameters_of(self, features: Any, observations: Any) -> Any:
        """Parameters of the action distribution, from features.

        Args:
            features: What the encoder made of the observations, (..., F): one pass of it can serve several heads.
            observations: Nested, (..., *shape); they say which actions are allowed.

        Returns:
            Nested like the action space; see `Joint`.
        """
        flat = {}
        for leaf in self.leaves:
            outputs = self.heads[leaf.path].call(features)
            plain = leaf.kind == "categorical" and leaf.shape == ()
            if plain:
                flat[leaf.path] = outputs
            elif leaf.kind == "normal" and self.log_std == "variable":
                mean = outputs if leaf.shape == (leaf.size,) else self._shaped(outputs, leaf.path)
                flat[leaf.path] = {"mean": mean, "log_std": self._log_std_of_leaf(mean, leaf.path)}
            else:
                flat[leaf.path] = self._parameters_of_leaf(outputs, leaf.path)
        return self._masked(self.action_space.unflatten(flat), observations)

    @api(static=("explore",))
    def act(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None, explore: bool = True) -> Any:
        """Chooses actions.

        Args:
            observations: Nested, (B, *shape).
            recurrent_state: Before the step.
            episode_start: The observation is the first of its episode.
            explore: Static. True draws from the distribution, False takes its mode.

        Returns:
            Nested actions (B, *shape), their log-probability (B,), and the recurrent state after the step.
        """
        features, after = self.features(observations, recurrent_state, episode_start)
        parameters = self.parameters_of(features, observations)
        if explore:
            actions, log_probs = self.distribution.sample_and_log_prob(parameters)
        else:
            actions, log_probs = self.distribution.mode_and_log_prob(parameters)
        return actions, log_probs, after

    @api
    def log_prob_and_entropy(
        self, observations: Any, actions: Any, recurrent_state: Any = (), episode_start: Any = None
    ) -> Any:
        """Log-probability of actions, and entropy, summed over all leaves and components.

        Args:
            observations: Nested, (..., *shape); of recurrent networks sequences (T, B, *shape).
            actions: Nested actions, (..., *shape).
            recurrent_state: Before the first step.
            episode_start: As in `features`.

        Returns:
            (...), (...).
        """
        features, _ = self.features(observations, recurrent_state, episode_start)
        return self.log_prob_and_entropy_of(features, observations, actions)

    @api
    def log_prob_and_entropy_of(self, features: Any, observations: Any, actions: Any) -> Any:
        """As `log_prob_and_entropy`, from features (..., F) that the encoder made of the observations."""
        return self.distribution.log_prob_and_entropy(self.parameters_of(features, observations), actions)

    @graph_fn
    def _log_std_of_leaf(self, mean: Any, path: str) -> Any:
        # apart from the mean, which is all that a greedy look takes
        return ops.broadcast_to(self.log_stds[path].value, mean.shape)

    @graph_fn(returns=1)
    def _parameters_of_leaf(self, outputs: Any, path: str) -> Any:
        leaf = self._leaf(path)
        if leaf.kind == "categorical":
            return arranged(outputs, leaf)
        leading = tuple(outputs.shape[:-1])
        if leaf.kind == "bernoulli":
            return ops.reshape(outputs, (*leading, *leaf.shape))
        both = ops.reshape(outputs, (*leading, 2, leaf.size))
        shape = (*leading, *leaf.shape)
        return {
            "mean": ops.reshape(both[..., 0, :], shape),
            "log_std": ops.reshape(both[..., 1, :], shape),
        }


def arranged(outputs: Any, leaf: ActionLeaf) -> Any:
    """Outputs of a head per action component and category, those that do not exist masked (inside a graph function).

    Args:
        outputs: (..., size * N).
        leaf: The action leaf.

    Returns:
        (..., *shape, N).
    """
    outputs = ops.reshape(outputs, (*outputs.shape[:-1], *leaf.shape, leaf.categories))
    return outputs if leaf.allowed is None else ops.where(leaf.allowed, outputs, MASKED)


def hidden_initializer(initializer: str | None) -> InitializerSpec:
    """Initializer of the hidden layers of a policy or value function; "orthogonal" or None."""
    if initializer not in (None, "orthogonal"):
        raise SpecError("unknown initializer of a policy", received=repr(initializer), fix="'orthogonal' or None")
    return None if initializer is None else orthogonal_spec(math.sqrt(2.0))


def _outputs(leaf: ActionLeaf, log_std: str) -> int:
    if leaf.kind == "categorical":
        return leaf.size * leaf.categories
    return leaf.size * (2 if leaf.kind == "normal" and log_std == "head" else 1)
