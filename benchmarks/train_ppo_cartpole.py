"""PPO on CartPole-v1, environment steps per second with learning on: rlweave / Stable-Baselines3 / a plain torch file.

All use 8 environments of Gymnasium in one process, rollouts of 32 steps, 20 epochs of one minibatch of 256, the same
networks and hyper-parameters (those of the RL zoo), and take the same number of samples and of gradient steps, which
is asserted. The clock starts after the first rollout and update, so that nobody's start or compilation is on it (it
has a column), and stops before the greedy evaluation. The plain file is the one everybody writes: all in one loop, an
`nn.Module`, `torch.optim.Adam`, `gymnasium.vector.SyncVectorEnv`.
"""

from __future__ import annotations

import argparse
import functools
import statistics

from alternating import clock, judged, one_thread, report

one_thread()

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from rlweave.envs import evaluate, make_env  # noqa: E402

torch.set_num_threads(1)

ENV, NUM_ENVS, STEPS, EPOCHS = "CartPole-v1", 8, 32, 20
BATCH = NUM_ENVS * STEPS
DISCOUNT, LAMBDA, CLIP, LR, EPSILON = 0.98, 0.8, 0.2, 1e-3, 1e-5
VALUE_COEFFICIENT, ENTROPY_COEFFICIENT, MAX_GRAD_NORM = 0.5, 0.0, 0.5
EVALUATION_EPISODES = 20
#: Final returns of 5 seeds differ by chance; so much less counts as no worse.
RETURN_TOLERANCE = 0.05


def final_return(act, seed):
    """Mean return of greedy episodes; `act` maps observations (B, 4) to actions (B,)."""
    factory = functools.partial(make_env, ENV, EVALUATION_EPISODES)
    return evaluate(lambda observations, _: act(observations), factory, EVALUATION_EPISODES, 10_000 + seed).mean_return


def rlweave_ppo(iterations, seed, *, backend, acting_backend):
    """rlweave, by the same trainer that the command line uses."""
    from rlweave.algorithms.registry import get_algorithm

    spec = get_algorithm("ppo")
    config = spec.config_class.from_data(
        {
            "env": ENV,
            "num_envs": NUM_ENVS,
            "backend": backend,
            "seed": seed,
            "steps": iterations * BATCH,
            "evaluate_every": 0,
            "checkpoint_every": 0,
            "agent": {
                "acting_backend": acting_backend,
                "rollout_steps": STEPS,
                "epochs": EPOCHS,
                "minibatches": 1,
                "discount": DISCOUNT,
                "gae_lambda": LAMBDA,
                "clip": CLIP,
                "lr": {"type": "linear", "start": LR, "end": 0.0},
                "optimizer": {"type": "adam", "epsilon": EPSILON},
                # rlweave halves the squared error of values, the others do not
                "value_coefficient": 2 * VALUE_COEFFICIENT,
                "entropy_coefficient": ENTROPY_COEFFICIENT,
                "max_grad_norm": MAX_GRAD_NORM,
            },
        }
    )
    begin = clock()
    trainer = spec.make_trainer(config, None)
    for _ in trainer.plan.run(until=lambda counters: counters.env_steps_sampled >= BATCH):
        pass
    start = clock()
    for _ in trainer.train():
        pass
    seconds = clock() - start
    agent, counters = trainer.agent, trainer.plan.counters
    steps = int(agent.executor.get_weights("ppo/optimizer/steps")["ppo/optimizer/steps"])
    assert steps == counters.gradient_steps
    result = final_return(lambda observations: agent.get_actions(observations, explore=False), seed)
    trainer.close()
    return start - begin, seconds, counters.env_steps_sampled, steps, result


def stable_baselines(iterations, seed):
    """Stable-Baselines3."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Clock(BaseCallback):
        """Notes when the second rollout starts."""

        rollouts, start = 0, 0.0

        def _on_rollout_start(self):
            self.rollouts += 1
            if self.rollouts == 2:
                self.start = clock()

        def _on_step(self):
            return True

    begin, timer = clock(), Clock()
    model = PPO(
        "MlpPolicy",
        make_vec_env(ENV, NUM_ENVS, seed=seed),
        learning_rate=lambda remaining: remaining * LR,
        n_steps=STEPS,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        gamma=DISCOUNT,
        gae_lambda=LAMBDA,
        clip_range=CLIP,
        ent_coef=ENTROPY_COEFFICIENT,
        vf_coef=VALUE_COEFFICIENT,
        max_grad_norm=MAX_GRAD_NORM,
        policy_kwargs={"optimizer_kwargs": {"eps": EPSILON}},
        seed=seed,
        device="cpu",
        verbose=0,
    )
    model.learn(iterations * BATCH, callback=timer)
    seconds = clock() - timer.start
    steps = optimizer_steps(model.policy.optimizer)
    result = final_return(lambda observations: model.predict(observations, deterministic=True)[0], seed)
    return timer.start - begin, seconds, model.num_timesteps, steps, result


class ActorCritic(nn.Module):
    """Two separate networks, 4-64-64-2 and 4-64-64-1."""

    def __init__(self):
        super().__init__()
        self.actor, self.critic = self.network(2, 0.01), self.network(1, 1.0)

    @staticmethod
    def network(outputs, gain):
        """Tanh layers with orthogonal kernels."""
        layers = [nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
        for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
            nn.init.orthogonal_(layer.weight, scale)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def plain_file(iterations, seed):
    """PPO in one function."""
    begin = clock()
    torch.manual_seed(seed)
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make(ENV)] * NUM_ENVS, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
    )
    agent = ActorCritic()
    optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=EPSILON)
    observations = torch.zeros(STEPS, NUM_ENVS, 4)
    actions = torch.zeros(STEPS, NUM_ENVS, dtype=torch.int64)
    log_probs, rewards, ends, values = (torch.zeros(STEPS, NUM_ENVS) for _ in range(4))
    observation = torch.from_numpy(envs.reset(seed=seed)[0])
    samples, start = 0, 0.0
    returns, running = [], np.zeros(NUM_ENVS)
    for iteration in range(iterations):
        if iteration == 1:
            start = clock()
        optimizer.param_groups[0]["lr"] = LR * (1 - iteration / iterations)
        for t in range(STEPS):
            observations[t] = observation
            with torch.no_grad():
                policy = torch.distributions.Categorical(logits=agent.actor(observation))
                action = policy.sample()
                actions[t], log_probs[t] = action, policy.log_prob(action)
                values[t] = agent.critic(observation)[:, 0]
            observation, reward, terminated, truncated, _ = envs.step(action.numpy())
            observation, end = torch.from_numpy(observation), terminated | truncated
            rewards[t], ends[t] = torch.from_numpy(reward), torch.from_numpy(end)
            samples += NUM_ENVS
            running += reward
            if end.any():
                returns += running[end].tolist()
                running[end] = 0.0
        with torch.no_grad():
            next_values, advantage = agent.critic(observation)[:, 0], 0.0
            advantages = torch.zeros_like(rewards)
            for t in reversed(range(STEPS)):
                alive = 1.0 - ends[t]
                delta = rewards[t] + DISCOUNT * next_values * alive - values[t]
                advantages[t] = advantage = delta + DISCOUNT * LAMBDA * alive * advantage
                next_values = values[t]
            targets = (advantages + values).reshape(-1)
        rows = observations.reshape(-1, 4), actions.reshape(-1), log_probs.reshape(-1), advantages.reshape(-1)
        for _ in range(EPOCHS):
            chosen = torch.randperm(BATCH)
            s, a, old, adv = (x[chosen] for x in rows)
            policy = torch.distributions.Categorical(logits=agent.actor(s))
            ratio = (policy.log_prob(a) - old).exp()
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            policy_loss = -torch.min(adv * ratio, adv * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            value_loss = nn.functional.mse_loss(agent.critic(s)[:, 0], targets[chosen])
            loss = policy_loss + VALUE_COEFFICIENT * value_loss - ENTROPY_COEFFICIENT * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
            optimizer.step()
    seconds = clock() - start
    envs.close()

    def act(observations):
        with torch.no_grad():
            return agent.actor(torch.from_numpy(observations)).argmax(-1).int().numpy()

    return start - begin, seconds, samples, optimizer_steps(optimizer), final_return(act, seed)


def optimizer_steps(optimizer):
    """How often a torch optimizer has moved its parameters."""
    (steps,) = {int(state["step"]) for state in optimizer.state.values()}
    return steps


CONTESTANTS = {
    "rlweave jax": (functools.partial(rlweave_ppo, backend="jax", acting_backend="numpy"), "numpy"),
    "Stable-Baselines3": (stable_baselines, "torch"),
    "rlweave torch": (functools.partial(rlweave_ppo, backend="torch", acting_backend="torch"), "torch"),
    "plain file": (plain_file, "torch"),
}
#: Ours, the peer, and what the ratio of their speeds should reach.
COMPARISONS = (("rlweave jax", "Stable-Baselines3", 3.0), ("rlweave torch", "plain file", 1.0))


def run(rounds, iterations):
    """Steps per second and final returns by contestant, of all rounds; prints each run."""
    speeds = {name: [] for name in CONTESTANTS}
    returns = {name: [] for name in CONTESTANTS}
    print(f"{'seed':<6}{'contestant':<19}{'acts on':<9}{'start s':>8}{'train s':>9}{'steps/s':>9}{'final return':>14}")
    for seed in range(rounds):
        order = list(CONTESTANTS)
        counts = set()
        for name in order if seed % 2 == 0 else order[::-1]:
            contestant, acting = CONTESTANTS[name]
            startup, seconds, samples, gradient_steps, result = contestant(iterations, seed)
            counts.add((samples, gradient_steps))
            speed = (samples - BATCH) / seconds
            speeds[name].append(speed)
            returns[name].append(result)
            line = f"{seed:<6}{name:<19}{acting:<9}{startup:>8.2f}{seconds:>9.2f}{speed:>9.0f}{result:>14.1f}"
            print(line, flush=True)
        assert counts == {(iterations * BATCH, iterations * EPOCHS)}, counts
    return speeds, returns


def rows(rounds, iterations):
    """All comparisons."""
    speeds, returns = run(rounds, iterations)
    found = []
    for ours, peer, bar in COMPARISONS:
        ratios = [mine / other for mine, other in zip(speeds[ours], speeds[peer], strict=True)]
        found.append(
            {
                "case": f"{ours} / {peer}, steps/s",
                "ours": round(statistics.median(speeds[ours])),
                "peer": round(statistics.median(speeds[peer])),
                **judged(ratios, bar),
            }
        )
    for ours, peer, _ in COMPARISONS:
        mine, other = statistics.mean(returns[ours]), statistics.mean(returns[peer])
        row = judged([mine / other, mine / other], 1.0 - RETURN_TOLERANCE)
        found.append({"case": f"{ours} / {peer}, mean final return", "ours": mine, "peer": other, **row})
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contestant, a seed each (default: 5)")
    parser.add_argument("--iterations", type=int, default=235, help="rollouts of 256 steps in a run (default: 235)")
    arguments = parser.parse_args()
    table = rows(arguments.rounds, arguments.iterations)
    print()
    report("train_ppo_cartpole", table, "learning on, no evaluation on the clock; one thread, one core")
