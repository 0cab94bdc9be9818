"""SAC, TD3 and DDPG: updates against programs written by hand, on every backend, and what is common to all."""

import numpy as np
import pytest
import torch

from rlweave import load
from rlweave.agents.sac import SAC, FusedSAC, SACGraph
from rlweave.agents.td3 import DDPG, TD3, DeterministicGraph, FusedDDPG, FusedTD3
from rlweave.components import SGD, Critics, DeterministicPolicy, Policy, ReplayMemory, Temperature
from rlweave.envs.in_graph import make_graph_environment
from rlweave.errors import ExecutionError, SpaceError, SpecError
from rlweave.graph import build
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.tree import tree_map
from tests.components.gradient_probes import DIFFERENTIABLE

AGENTS = (SAC, TD3, DDPG)
SMALL = {"network": [{"type": "dense", "units": 8, "activation": "relu"}], "lr": 0.01, "tau": 0.1}
STATE, ACTION = FloatBox(shape=(3,)), FloatBox(low=-2.0, high=2.0, shape=(2,))
RECORD = {
    **{"observations": STATE, "actions": FloatBox(shape=(2,)), "rewards": FloatBox(), "terminated": BoolBox()},
    **{"discounts": FloatBox(), "next_observations": STATE},
}


def records(rng, rows=6):
    return {
        "observations": rng.normal(size=(rows, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminated": np.arange(rows) % 3 == 0,
        "discounts": np.full(rows, 0.9, np.float32),
        "next_observations": rng.normal(size=(rows, 3)).astype(np.float32),
    }


class ByHand:
    """TD3 (with one critic and no delay: DDPG) in plain torch, without noise on the actions of targets."""

    def __init__(self, weights, critics, delay, lr, tau):
        self.weights = {path: torch.tensor(value) for path, value in weights.items()}
        self.critics, self.delay, self.tau, self.updates = critics, delay, tau, 0
        self.parts = {}
        for part in ("policy", "critics"):
            leaves = {path: value for path, value in self.weights.items() if path.startswith(f"{part}/")}
            for value in leaves.values():
                value.requires_grad_(True)
            self.parts[part] = leaves, torch.optim.Adam(leaves.values(), lr=lr)

    def policy(self, observations, of="policy"):
        w = self.weights
        hidden = torch.relu(observations @ w[f"{of}/network/dense/kernel"] + w[f"{of}/network/dense/bias"])
        return torch.tanh(hidden @ w[f"{of}/head/kernel"] + w[f"{of}/head/bias"])

    def values(self, observations, actions, of="critics"):
        w, x = self.weights, torch.cat([observations, actions], 1)
        columns = []
        for critic in range(self.critics):
            hidden = torch.relu(x @ w[f"{of}/layer-0/kernel"][critic] + w[f"{of}/layer-0/bias"][critic])
            columns.append(hidden @ w[f"{of}/head/kernel"][critic] + w[f"{of}/head/bias"][critic])
        return torch.cat(columns, 1)

    def step(self, part, loss):
        leaves, optimizer = self.parts[part]
        optimizer.zero_grad()
        for value, gradient in zip(leaves.values(), torch.autograd.grad(loss, list(leaves.values())), strict=True):
            value.grad = gradient
        optimizer.step()

    def update(self, batch):
        batch = {name: torch.tensor(value) for name, value in batch.items()}
        with torch.no_grad():
            following = self.policy(batch["next_observations"], "target-policy")
            q = self.values(batch["next_observations"], following, "target-critics").min(1).values
            targets = batch["rewards"] + batch["discounts"] * (~batch["terminated"]) * q
        errors = targets[:, None] - self.values(batch["observations"], batch["actions"])
        loss = 0.5 * (errors**2).sum(1).mean()
        self.step("critics", loss)
        self.updates += 1
        if self.updates % self.delay == 0:
            self.step("policy", -self.values(batch["observations"], self.policy(batch["observations"]))[:, 0].mean())
            with torch.no_grad():
                for part in ("policy", "critics"):
                    for path, value in self.parts[part][0].items():
                        target = self.weights[f"target-{path}"]
                        target += self.tau * (value - target)
        return loss.item()


def weights_of(agent):
    root = agent.executor.root.path
    found = agent.executor.get_weights(root)
    parts = ("policy/", "critics/", "target-policy/", "target-critics/")
    named = {path.removeprefix(f"{root}/"): value for path, value in found.items()}
    return {path: value for path, value in named.items() if path.startswith(parts)}


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
@pytest.mark.parametrize(("agent_class", "critics", "delay"), [(DDPG, 1, 1), (TD3, 2, 2)])
def test_updates_are_those_of_a_program_written_by_hand(agent_class, critics, delay, backend):
    more = {"target_noise": 0.0} if agent_class is TD3 else {}
    agent = agent_class(STATE, ACTION, {**SMALL, **more}, backend=backend, seed=4)
    by_hand = ByHand(weights_of(agent), critics, delay, SMALL["lr"], SMALL["tau"])
    rng = np.random.default_rng(0)
    for _ in range(4):
        batch = records(rng)
        before = weights_of(agent)
        loss = agent.update(batch)["loss"]
        assert loss == pytest.approx(by_hand.update(batch), rel=1e-4)
        after = weights_of(agent)
        moved = {path for path in after if not np.array_equal(before[path], after[path])}
        assert {path for path in after if path.startswith("critics/")} <= moved
        # policy and targets move at every update, or at every second one
        others = {path for path in after if not path.startswith("critics/")}
        assert moved & others == (others if by_hand.updates % delay == 0 else set())
    for path, value in by_hand.weights.items():
        np.testing.assert_allclose(weights_of(agent)[path], value.detach().numpy(), rtol=2e-3, atol=2e-5, err_msg=path)


class SACByHand(ByHand):
    """SAC in plain torch, with the noise that the agent's actions were drawn with."""

    def __init__(self, weights, log_alpha, lr, tau, temperature_lr):
        super().__init__(weights, 2, 1, lr, tau)
        self.log_alpha = torch.tensor(float(log_alpha), requires_grad=True)
        self.parts["temperature"] = {"": self.log_alpha}, torch.optim.Adam([self.log_alpha], lr=temperature_lr)

    def drawn(self, observations, actions):
        """The actions as a function of the policy's weights, and their log-densities in the box [-2, 2]."""
        w = self.weights
        hidden = torch.relu(observations @ w["policy/network/dense/kernel"] + w["policy/network/dense/bias"])
        mean, log_std = (hidden @ w["policy/head/kernel"] + w["policy/head/bias"]).chunk(2, 1)
        noise = ((torch.atanh(actions) - mean) / log_std.exp()).detach()
        u = mean + log_std.exp() * noise
        density = torch.distributions.Normal(mean, log_std.exp()).log_prob(u)
        return torch.tanh(u), (density - torch.log(1 - torch.tanh(u) ** 2) - np.log(2.0)).sum(1)

    def update_with(self, batch, next_actions, actions):
        batch = {name: torch.tensor(value) for name, value in batch.items()}
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            following, log_probs = self.drawn(batch["next_observations"], torch.tensor(next_actions))
            q = self.values(batch["next_observations"], following, "target-critics").min(1).values - alpha * log_probs
            targets = batch["rewards"] + batch["discounts"] * (~batch["terminated"]) * q
        loss = 0.5 * ((targets[:, None] - self.values(batch["observations"], batch["actions"])) ** 2).sum(1).mean()
        self.step("critics", loss)
        taken, log_probs = self.drawn(batch["observations"], torch.tensor(actions))
        policy_loss = (alpha * log_probs - self.values(batch["observations"], taken).min(1).values).mean()
        self.step("policy", policy_loss)
        target_entropy = 2 * (np.log(2) - 1)  # minus one for each component, in the units of the box
        self.step("temperature", -self.log_alpha * (log_probs.detach() + target_entropy).mean())
        with torch.no_grad():
            for path, value in self.parts["critics"][0].items():
                target = self.weights[f"target-{path}"]
                target += self.tau * (value - target)
        found = {"loss": loss, "policy_loss": policy_loss, "temperature": alpha, "entropy": -log_probs.mean()}
        return {name: value.item() for name, value in found.items()}


def test_updates_of_sac_are_those_of_a_program_written_by_hand():
    agent = SAC(STATE, ACTION, {**SMALL, "temperature": 0.7, "temperature_lr": 0.02}, backend="torch", seed=4)
    by_hand = SACByHand(weights_of(agent), np.log(0.7), SMALL["lr"], SMALL["tau"], 0.02)
    rng = np.random.default_rng(0)
    for _ in range(4):
        batch = records(rng)
        for name in ("observations", "next_observations"):
            batch[name] *= 0.1  # so that no action comes near a bound, where its inverse has no digits
        # the draws of an update are those of two looks from the same state
        state = {path: np.array(array) for path, array in agent.executor.state_dict().items()}
        next_actions = agent.executor.fresh_actions(batch["next_observations"])[0]
        actions = agent.executor.fresh_actions(batch["observations"])[0]
        agent.executor.load_state_dict(state)
        metrics = agent.update(batch)
        for name, value in by_hand.update_with(batch, next_actions, actions).items():
            assert metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    for path, value in by_hand.weights.items():
        if not path.startswith("target-policy"):
            found = weights_of(agent)[path]
            np.testing.assert_allclose(found, value.detach().numpy(), rtol=2e-3, atol=2e-4, err_msg=path)
    log_alpha = agent.executor.get_weights()["sac/temperature/log_alpha"]
    assert log_alpha == pytest.approx(by_hand.log_alpha.item(), rel=1e-3)


def test_drawing_and_learning_are_one_call_unless_they_are_asked_to_be_two():
    def root(**options):
        policy, critics = DeterministicPolicy([], ACTION), Critics([])
        return DeterministicGraph(policy, critics, SGD(), SGD(), 0.1, memory=ReplayMemory(4), **options)

    assert not root().offers("draw_batch")
    assert root(prefetch=True).offers("draw_batch")


@pytest.mark.parametrize(("kind", "targets"), [(SAC, {"critics"}), (TD3, {"critics", "policy"})])
def test_targets_are_not_trainable(kind, targets):
    cells = kind(STATE, ACTION, SMALL, backend="numpy").executor.store.cells
    name = kind.name
    for part in ("critics", "policy"):
        assert all(cell.trainable for path, cell in cells.items() if path.startswith(f"{name}/{part}/"))
        of_target = [cell for path, cell in cells.items() if path.startswith(f"{name}/target-{part}/")]
        assert bool(of_target) == (part in targets)
        assert not any(cell.trainable for cell in of_target)


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_schedules_of_a_delayed_policy_count_the_updates_of_the_critics(backend):
    settings = {**SMALL, "lr": {"type": "linear", "start": 0.01, "end": 0.0, "steps": 4}}
    agent = TD3(STATE, ACTION, settings, backend=backend)
    rng = np.random.default_rng(0)
    moved = []
    for _ in range(6):
        before = weights_of(agent)
        agent.update(records(rng))
        changes = (np.abs(value - before[path]).max() for path, value in weights_of(agent).items() if path[0] == "p")
        moved.append(max(changes))
    # Adam's first step has the size of the learning rate, here that of the second of four updates
    assert moved[:2] == pytest.approx([0, 0.0075], rel=1e-3)
    assert 0 < moved[3] < 0.0075
    assert moved[5] == 0


def test_schedules_of_a_policy_that_is_not_delayed_end_with_it():
    agent = DDPG(
        STATE, ACTION, {**SMALL, "lr": {"type": "linear", "start": 0.01, "end": 0.0, "steps": 2}}, backend="torch"
    )
    rng = np.random.default_rng(0)
    moved = []
    for _ in range(3):
        before = weights_of(agent)
        agent.update(records(rng))
        changes = (np.abs(value - before[path]).max() for path, value in weights_of(agent).items() if path[0] == "p")
        moved.append(max(changes))
    assert moved[0] == pytest.approx(0.01, rel=1e-3)
    assert 0 < moved[1] < 0.01
    assert moved[2] == 0


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_densities_of_sac_are_in_units_of_the_environment(backend):
    # by quadrature over the box [-2, 4]: densities of fresh actions, estimated by a histogram of many
    agent = SAC(STATE, FloatBox(low=-2.0, high=4.0, shape=(1,)), SMALL, backend=backend, seed=1)
    observations = np.repeat(np.array([[0.3, -0.2, 0.5]], np.float32), 20_000, axis=0)
    actions, log_probs = agent.executor.fresh_actions(observations)
    taken = agent.env_actions(actions)[:, 0]
    assert taken.min() >= -2
    assert taken.max() <= 4
    counts, edges = np.histogram(taken, bins=24, range=(-2, 4))
    centers = (edges[:-1] + edges[1:]) / 2
    density = counts / counts.sum() / (edges[1] - edges[0])
    for number in np.flatnonzero(counts > 300):
        near = np.abs(taken - centers[number]) < 0.05
        assert np.exp(log_probs[near]).mean() == pytest.approx(density[number], rel=0.2)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_sacs_targets_and_temperature_move_at_every_update(backend):
    agent = SAC(STATE, ACTION, SMALL, backend=backend)
    assert agent.make_root().temperature.target_entropy == pytest.approx(2 * (np.log(2) - 1))  # the box is [-2, 2]
    rng = np.random.default_rng(0)
    before = agent.executor.get_weights(agent.executor.root.path)
    metrics = agent.update(records(rng))
    after = agent.executor.get_weights(agent.executor.root.path)
    for path in (path for path in after if "/target-critics/" in path):
        critic = after[path.replace("/target-critics/", "/critics/")]
        np.testing.assert_allclose(after[path], before[path] + 0.1 * (critic - before[path]), rtol=1e-5, atol=1e-7)
    assert metrics["temperature"] == 1  # as it was used
    # Adam's first step has the size of the learning rate; a distribution with more entropy than asked for cools
    step = after["sac/temperature/log_alpha"] - before["sac/temperature/log_alpha"]
    assert step == pytest.approx(-3e-4, rel=1e-3)
    assert metrics["entropy"] > -2
    fixed = SAC(STATE, ACTION, {**SMALL, "learn_temperature": False, "temperature": 0.2}, backend=backend)
    assert [fixed.update(records(rng))["temperature"] for _ in range(2)] == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_sac_learns_the_same_with_a_box_of_any_scale(backend):
    wide = Dict(a=FloatBox(low=-2.0, high=[2.0, 30.0], shape=(2,)), b=FloatBox(low=0.0, high=0.01), free=FloatBox())
    unit = Dict(a=FloatBox(low=-1.0, high=1.0, shape=(2,)), b=FloatBox(low=-1.0, high=1.0), free=FloatBox())
    agents = [SAC(STATE, space, SMALL, backend=backend, seed=3) for space in (wide, unit)]
    rng = np.random.default_rng(0)
    for _ in range(20):
        batch = records(rng)
        # nothing is bootstrapped: the entropy in targets is in the environment's units
        batch |= {"actions": unit.sample(6, rng=rng), "discounts": np.zeros(6, np.float32)}
        wide_metrics, unit_metrics = (agent.update(batch) for agent in agents)
        assert wide_metrics["temperature"] == pytest.approx(unit_metrics["temperature"], rel=1e-5)
        # entropies differ by the scale
        more = np.log([2.0, 16.0, 0.005]).sum()
        assert wide_metrics["entropy"] == pytest.approx(unit_metrics["entropy"] + more, rel=1e-3, abs=1e-3)
    assert unit_metrics["temperature"] < 0.999
    observations = rng.normal(size=(8, 3)).astype(np.float32)
    wide_actions, unit_actions = (agent.act(observations, explore=False)[0] for agent in agents)
    for path in ("a", "b", "free"):
        np.testing.assert_allclose(wide_actions[path], unit_actions[path], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("agent_class", AGENTS)
def test_nested_spaces_and_images(agent_class, backend):
    image = IntBox(0, 256, shape=(8, 8, 1), dtype="uint8", layout="channels_last")
    space = Dict(image=image, kind=IntBox(3), flag=BoolBox())
    actions = Tuple(FloatBox(low=-2.0, high=[2.0, 5.0], shape=(2,)), Dict(free=FloatBox()))
    agent = agent_class(space, actions, {**SMALL, "learning_starts": 10, "batch_size": 4}, backend=backend)
    rng = np.random.default_rng(0)
    for step in range(12):
        state = space.sample(rng=rng)
        action = agent.get_actions(state)
        assert -2 <= action[0][0] <= 2
        assert -2 <= action[0][1] <= 5
        agent.observe(state, action, 1.0, False, step == 5, space.sample(rng=rng))
    assert agent.ready()
    assert np.isfinite(agent.update()["loss"])


def stored(agent, *steps):
    """The records that steps leave in the memory, by reward."""
    for step in steps:
        agent.observe(*step)
    found, _, _ = agent.draw()
    rewards = np.asarray(found["rewards"])
    rows = {reward: int(np.flatnonzero(rewards == reward)[0]) for reward in set(rewards.tolist())}
    return {reward: tree_map(lambda column, i=i: np.asarray(column)[i], found) for reward, i in rows.items()}


@pytest.mark.parametrize("agent_class", AGENTS)
def test_memories_hold_the_policys_own_actions_and_tell_a_cut_from_an_end(agent_class):
    action = FloatBox(low=[-2.0, 0.0], high=[2.0, 10.0], shape=(2,))
    agent = agent_class(STATE, action, {**SMALL, "learning_starts": 1, "prefetch": 1}, backend="torch")
    before, after = np.zeros(3, np.float32), np.ones(3, np.float32)
    found = stored(
        agent,
        (before, np.array([1.0, 10.0], np.float32), 1.0, False, True, after),
        (before, np.array([-2.0, 5.0], np.float32), 2.0, True, False, 2 * after),
        (before, np.array([0.0, 0.0], np.float32), 3.0, True, True, 3 * after),  # both: there is nothing to bootstrap
    )
    np.testing.assert_allclose([found[reward]["actions"] for reward in (1, 2, 3)], [[0.5, 1], [-1, 0], [0, -1]])
    assert [bool(found[reward]["terminated"]) for reward in (1, 2, 3)] == [False, True, True]
    # the last observation of the episode, not the first one of the next
    np.testing.assert_array_equal([found[reward]["next_observations"][0] for reward in (1, 2, 3)], [1, 2, 3])
    assert found[1]["discounts"] == pytest.approx(0.99)


@pytest.mark.parametrize("agent_class", AGENTS)
def test_actions_that_no_environment_takes_are_not_learned_from(agent_class):
    agent = agent_class(STATE, FloatBox(low=-0.3, high=[0.1, np.inf], shape=(2,)), SMALL, backend="torch")
    state = np.zeros(3)
    agent.observe(state, np.array([0.1, 1e6]), 0.0, False, True, state)  # at the bound, whatever float32 makes of it
    agent.observe(state, np.array([-0.3, -0.3]), 0.0, False, True, state)
    with pytest.raises(ExecutionError, match="out of its bounds") as error:
        agent.observe(state, np.array([0.2, 0.0]), 0.0, False, True, state)
    assert "environment 0, action" in str(error.value)
    assert agent.env_steps == 2


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
@pytest.mark.parametrize("agent_class", AGENTS)
def test_targets_that_follow_at_once_are_the_networks(agent_class, backend):
    agent = agent_class(STATE, ACTION, {**SMALL, "tau": 1.0}, backend=backend)
    rng = np.random.default_rng(0)
    for _ in range(2):
        agent.update(records(rng))
    weights = weights_of(agent)
    targets = [path for path in weights if path.startswith("target-")]
    assert targets
    for path in targets:
        np.testing.assert_array_equal(weights[path], weights[path.removeprefix("target-")])


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("agent_class", AGENTS)
def test_boxes_with_a_fixed_and_with_open_sides_and_batches_of_one(agent_class, backend):
    space = FloatBox(low=[2.0, 0.0, -np.inf, -1.0], high=[2.0, np.inf, np.inf, 5.0], shape=(4,))
    settings = {**SMALL, "learning_starts": 2, "batch_size": 1, "n_step": 3, "samples_per_step": 1.0}
    agent = agent_class(STATE, space, settings, backend=backend)
    rng = np.random.default_rng(0)
    for step in range(8):
        state = rng.normal(size=3)  # float64, as many environments give it
        action = agent.get_actions(state)
        assert action.dtype == np.float32
        assert space.contains(action)
        # an episode of one step, which is shorter than a window; and one that goes on
        agent.observe(state, action, 1, False, step in (0, 5), rng.normal(size=3))
    for _ in range(4):
        metrics = agent.update()
        assert all(np.isfinite(value) for value in metrics.values())
    assert {str(value.dtype) for value in weights_of(agent).values()} == {"float32"}


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("agent_class", AGENTS)
def test_greedy_looks_draw_no_random_numbers(agent_class, backend):
    plain, looked = (agent_class(STATE, ACTION, SMALL, backend=backend, seed=3) for _ in range(2))
    states = np.ones((2, 3), np.float32)
    for _ in range(3):
        looked.get_actions(states, explore=False)
        np.testing.assert_array_equal(looked.get_actions(states), plain.get_actions(states))


@pytest.mark.parametrize("agent_class", AGENTS)
def test_actions_that_are_no_numbers_are_refused(agent_class):
    with pytest.raises(SpaceError, match="floats only") as error:
        agent_class(STATE, Dict(gear=IntBox(3), wheel=ACTION))
    assert "gear" in str(error.value)


@pytest.mark.parametrize("agent_class", AGENTS)
def test_masks_are_refused_before_anything_is_built(agent_class):
    with pytest.raises(SpecError, match="actions can be masked where one of N is chosen"):
        agent_class(STATE, ACTION, {**SMALL, "mask_leaf": "allowed"}).check_components()


@pytest.mark.parametrize("agent_class", [TD3, DDPG])
def test_exploration_is_noise_in_units_of_the_box(agent_class):
    agent = agent_class(STATE, FloatBox(low=-100.0, high=300.0, shape=(1,)), {**SMALL, "noise": 0.05}, backend="numpy")
    observations = np.zeros((5000, 3), np.float32)
    noise = agent.env_actions(agent.act(observations)[0]) - agent.env_actions(agent.act(observations, explore=False)[0])
    assert noise.std() == pytest.approx(0.05 * 200, rel=0.05)


DRIFTING = {"type": "ornstein_uhlenbeck_noise", "deviation": 0.2, "rate": 0.3}


@pytest.mark.parametrize("backend", ["numpy", "onnx", "torch", "jax"])
@pytest.mark.parametrize("agent_class", [TD3, DDPG])
def test_noise_that_drifts_belongs_to_an_episode(agent_class, backend):
    learner = {"numpy": "torch", "onnx": "torch"}.get(backend, backend)
    settings = {**SMALL, "noise": DRIFTING, "acting_backend": backend, "learning_starts": 1}
    agent = agent_class(STATE, ACTION, settings, backend=learner)
    names, states = [f"environment {number}" for number in range(600)], np.zeros((600, 3), np.float32)

    def noise():
        found = agent.get_actions(states, names) - agent.get_actions(states, names, explore=False)
        return found[:, 0] / 2  # the box is [-2, 2]

    first = noise()
    assert first.std() == pytest.approx(0.2 * np.sqrt(1 - np.exp(-0.6)), rel=0.15)
    second = noise()
    kept = (first * second).mean() / (first * first).mean()
    assert kept == pytest.approx(np.exp(-0.3), abs=0.12)
    for name in names[:300]:  # steps that others chose may be observed, too
        agent.observe(states[0], np.zeros(2, np.float32), 0.0, False, True, states[0], env_id=name)
    third = noise()
    products = third * second
    assert abs(products[:300].mean()) < 0.004
    assert products[300:].mean() == pytest.approx(np.exp(-0.3) * (second[300:] ** 2).mean(), abs=0.006)
    assert np.isfinite(agent.update()["loss"])


@pytest.mark.parametrize("noise", [0.1, DRIFTING])
def test_an_exported_policy_explores_as_at_the_beginning_of_an_episode(noise, tmp_path):
    agent = TD3(STATE, ACTION, {**SMALL, "noise": noise}, backend="torch")
    policy = load(agent.export_model(tmp_path / "model"), backend="numpy")
    states = np.zeros((4000, 3), np.float32)
    difference = policy.act(states, deterministic=False) - policy.act(states)
    expected = 0.1 if noise == 0.1 else 0.2 * np.sqrt(1 - np.exp(-0.6))
    assert difference.std() / 2 == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("agent_class", "more"),
    [(FusedSAC, {}), (FusedTD3, {}), (FusedDDPG, {}), (FusedDDPG, {"noise": DRIFTING})],
    ids=["sac", "td3", "ddpg", "ddpg-noise-that-drifts"],
)
def test_fused_trainings_step_learn_and_resume(agent_class, more):
    environment = make_graph_environment("Pendulum-v1", 4, {})
    settings = {
        **SMALL,
        **more,
        "batch_size": 16,
        "samples_per_step": 8.0,
        "learning_starts": 32,
        "memory_capacity": 200,
    }

    def made():
        return agent_class(environment, settings, backend="jax", seed=2)

    agent = made()
    assert (agent.vector_steps, agent.updates) == (1, 2)
    agent.train(3)
    state, counters = agent.state_dict(), agent.counters()
    metrics, _ = agent.train(3)
    assert metrics["gradient_steps"] == 6
    assert agent.env_steps == 32 + 2 * 3 * 4
    resumed = made()
    resumed.load_state_dict(state)
    resumed.load_counters(counters)
    assert resumed.train(3)[0] == metrics
    for path, value in agent.state_dict().items():
        np.testing.assert_array_equal(resumed.state_dict()[path], value, err_msg=path)
    kept = [value for path, value in agent.state_dict().items() if path.endswith("/noise")]
    assert [value.shape for value in kept] == ([(4, 1)] if more else [])
    assert all((value != 0).all() for value in kept)


def test_a_fused_agent_keeps_the_noise_that_drifts():
    environment = make_graph_environment("Pendulum-v1", 4, {})
    settings = {**SMALL, "noise": {**DRIFTING, "rate": 1e-6}, "learning_starts": 4, "memory_capacity": 200}
    agent = FusedDDPG(environment, {**settings, "batch_size": 4, "samples_per_step": 1.0}, backend="torch", seed=2)

    def noise():
        (found,) = (v for path, v in agent.executor.get_weights().items() if path.startswith("ddpg/noise"))
        return found

    np.testing.assert_array_equal(noise(), np.zeros((4, 1)))
    agent.executor.set_weights({"ddpg/noise": np.full((4, 1), 0.5, np.float32)})
    agent.executor.collect(steps=1)
    np.testing.assert_array_equal(noise() == 0.5, np.zeros((4, 1), bool))  # episodes begin: so does their noise
    agent.executor.set_weights({"ddpg/noise": np.full((4, 1), 0.5, np.float32)})
    agent.executor.collect(steps=1)
    np.testing.assert_allclose(noise(), 0.5, atol=5 * 0.2 * np.sqrt(2e-6))  # it goes on, and hardly moves
    assert not (noise() == 0.5).any()


@pytest.mark.parametrize("kind", ["td3", "sac"])
def test_an_update_is_a_mean_over_rows(kind):
    # plain gradient descent shows the size of a loss, which Adam does not
    network = [{"type": "dense", "units": 4}]

    def root():
        critics = Critics(network)
        if kind == "td3":
            policy = DeterministicPolicy(network, ACTION, noise=0.0)
            return DeterministicGraph(policy, critics, SGD(0.1), SGD(0.1), 0.1)
        policy = Policy(network, ACTION, log_std="head", squash=True)
        optimizers = {name: SGD(0.1) for name in ("policy", "critics", "temperature")}
        return SACGraph(policy, critics, Temperature(-2.0), optimizers, 0.1, memory=ReplayMemory(4))

    batch = records(np.random.default_rng(0))
    spaces = {"records": Dict({name: space.with_batch_rank() for name, space in RECORD.items()})}
    moved = []
    for times in (1, 3):
        executor = build(root(), spaces, backend="torch", methods=["update_from"], seed=1)
        if kind == "sac":  # all draws are the mean
            head = next(path for path in executor.get_weights() if path.endswith("policy/head/bias"))
            executor.set_weights({head: np.array([0.0, 0.0, -30.0, -30.0], np.float32)})
        executor.update_from({name: np.concatenate([value] * times) for name, value in batch.items()})
        moved.append(executor.get_weights())
    for path, value in moved[0].items():
        np.testing.assert_allclose(moved[1][path], value, rtol=1e-4, atol=1e-5, err_msg=path)
