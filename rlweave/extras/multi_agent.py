"""Several policies that learn side by side, each with an algorithm of its own, from one stream of rollouts."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from rlweave.agents.agent import AUTO, Agent, AgentConfig
from rlweave.agents.dqn import DQN, DQNConfig
from rlweave.agents.epochs import fill_minibatches
from rlweave.agents.policy_agents import PolicyAgents
from rlweave.agents.ppo import PPO, PPOConfig
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.dqn import GraphLearner, dqn_branch
from rlweave.algorithms.environments import describe_environment, observation_space_of, options_checked
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.parts import Parts
from rlweave.algorithms.placement import RolloutWorkers, set_threads, worker_resources, worker_seed
from rlweave.algorithms.rollout_workers import build_acting
from rlweave.algorithms.schedule_lengths import linear_schedule, replay_updates
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.envs import Evaluation
from rlweave.envs.agent_groups import AgentGroup
from rlweave.envs.multi_agent import MultiAgentEnv
from rlweave.envs.multi_agent_evaluation import GroupAct, evaluate_together
from rlweave.envs.parallel_api import make_parallel_env, resolve_parallel
from rlweave.envs.seeding import derived_seed
from rlweave.errors import ConfigError
from rlweave.extras.multi_agent_worker import MultiAgentWorker, PackSequences, PackTrajectories
from rlweave.extras.policy_mapping import MappingRule, PolicyMapping
from rlweave.flow import Operator, PolicyBatches, ReportMetrics, Stream, TrainOneStep, Union, WorkerGroup, Workers
from rlweave.runs.metrics import Report
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.config import Config, setting
from rlweave.settings.sources import PresetFile

AGENT_CONFIGS: dict[str, type[AgentConfig]] = {"ppo": PPOConfig, "dqn": DQNConfig}


class PolicyConfig(Config):
    """Settings of one policy."""

    algorithm: Literal["ppo", "dqn"] = setting("ppo", "what trains it")
    agent: dict[str, Any] = setting({}, "settings of its agent, as `rlweave train ALGORITHM --settings` shows them")


class MultiAgentTrainConfig(TrainConfig):
    """Settings of a training of several policies. Environment steps are steps of single agents."""

    policies: dict[str, PolicyConfig] = setting({"shared": PolicyConfig()}, "the policies by name", min_length=1)
    mapping: dict[str, str] = setting(
        {"*": "shared"}, "which policy plays which agent: patterns of agents' names to policies; the last that fits"
    )
    save_memory: bool = setting(
        True, "checkpoints hold replay memories; without them a run that is resumed fills them anew before it learns"
    )
    steps_per_item: int = setting(
        16, "joint steps of each copy of the environment that a worker takes per item", ge=1, unit="joint steps"
    )


# -- making ------------------------------------------------------------------------------------------------------


def make_env(
    config: MultiAgentTrainConfig, mapping: PolicyMapping, copies: int, *, seed: int | None, worker: int
) -> MultiAgentEnv:
    """Copies of the environment, whose agents are grouped by policy.

    Raises:
        ConfigError: The environment does not take the `env_options`, or the mapping does not fit it.
        EnvError: It cannot be made for any other reason.
    """
    make = functools.partial(make_parallel_env, config.env, config.env_options)
    with options_checked(config):
        return MultiAgentEnv([make] * copies, mapping, seed=seed, worker=worker, info_metrics=config.info_metrics)


def make_training_env(config: MultiAgentTrainConfig, mapping: PolicyMapping, number: int = 0) -> MultiAgentEnv:
    """The copies of one worker: its share of `num_envs`."""
    copies = config.num_envs // config.placement.workers
    return make_env(config, mapping, copies, seed=config.seed, worker=number)


def agent_config(config: MultiAgentTrainConfig, policy: str, group: AgentGroup, all_agents: int) -> AgentConfig:
    """The validated settings of a policy's agent.

    A learning rate that falls over the whole training falls over as many updates as the policy makes if all agents
    act equally often; of DQN over those of its steps after the first `learning_starts`, which make none.

    Raises:
        ConfigError: Names the policy and the setting.
    """
    own = config.policies[policy]
    where = f"policies.{policy}.agent"
    try:
        settings = AGENT_CONFIGS[own.algorithm].from_data(own.agent)
    except ConfigError as error:
        raise ConfigError(error.what, where=where, received=error.received, fix=error.fix) from error
    if settings.acting_backend == AUTO:
        raise ConfigError(
            "the fastest acting backend is measured for one agent, not for several policies",
            where=f"{where}.acting_backend",
            received=repr(AUTO),
            fix="name a backend: numpy (or onnx)",
        )
    steps = max(1, config.schedule_length * len(group.agents) // all_agents)
    if isinstance(settings, PPOConfig):
        settings = fill_minibatches(settings, len(group.agents) * config.num_envs)
        updates = -(-steps // (settings.rollout_steps * len(group.agents) * config.num_envs))
        total = updates * settings.epochs * (settings.minibatches or 1)
        if config.steps_per_item > settings.rollout_steps:
            raise ConfigError(
                "an item would hold more steps than a rollout",
                where="steps_per_item",
                received=f"{config.steps_per_item}, with rollout_steps={settings.rollout_steps} of policy {policy!r}",
                fix=f"--set steps_per_item={settings.rollout_steps}",
            )
    else:
        assert isinstance(settings, DQNConfig)
        total = replay_updates(steps, settings.learning_starts, settings.samples_per_step, settings.batch_size)
    return settings.model_copy(update={"lr": linear_schedule(settings.lr, total)})


def make_agent(config: MultiAgentTrainConfig, policy: str, env: MultiAgentEnv, seed: int) -> Agent:
    """The agent of a policy; not built yet.

    Raises:
        ConfigError: Its settings are wrong.
    """
    group = env.groups[policy]
    settings = agent_config(config, policy, group, len(env.agents))
    observation_space = observation_space_of(config, group)
    kwargs: dict[str, Any] = {"backend": config.backend, "seed": derived_seed(seed, f"policy {policy}")}
    agent: Agent
    if isinstance(settings, PPOConfig):
        columns = len(group.agents) * config.num_envs
        agent = PPO(observation_space, group.action_space, settings, num_envs=columns, **kwargs)
    else:
        assert isinstance(settings, DQNConfig)
        agent = DQN(observation_space, group.action_space, settings, **kwargs)
    agent.made_for = describe_environment(config, group.gym_observation_space, group.gym_action_space)
    return agent


def make_agents(config: MultiAgentTrainConfig, env: MultiAgentEnv, seed: int) -> PolicyAgents:
    """The agents of all policies; not built yet."""
    return PolicyAgents({policy: make_agent(config, policy, env, seed) for policy in env.groups})


def acting_settings(config: MultiAgentTrainConfig, policy: str) -> tuple[str, dict[str, Any]]:
    """Backend and settings of an agent that only acts, in a worker."""
    own = config.policies[policy].agent
    backend = own.get("acting_backend") or config.backend
    placing = ("acting_backend", "device", "replicas")
    return backend, {key: value for key, value in own.items() if key not in placing}


class MultiAgentWorkerFactory:
    """Makes a worker in its process, with agents of its own of which only the acting part is built.

    Args:
        config: Settings of the training.
        mapping: Which policy plays which agent.
        number: Number of the worker.
    """

    def __init__(self, config: MultiAgentTrainConfig, mapping: PolicyMapping, number: int) -> None:
        self.config, self.mapping, self.number = config, mapping, number

    def __call__(self) -> MultiAgentWorker:
        """The worker."""
        config = self.config
        env = make_training_env(config, self.mapping, self.number)
        made: dict[str, Agent] = {}
        for policy in env.groups:
            backend, settings = acting_settings(config, policy)
            policies = {**config.policies, policy: config.policies[policy].model_copy(update={"agent": settings})}
            own = config.model_copy(update={"backend": backend, "policies": policies})
            made[policy] = make_agent(own, policy, env, worker_seed(config, self.number))
            build_acting(made[policy])
            set_threads(own, made[policy])
        worker = MultiAgentWorker(PolicyAgents(made), env, config.steps_per_item, self.number)
        worker.shares_weights, worker.workers = False, config.placement.workers
        return worker


def make_parts(config: MultiAgentTrainConfig, rule: MappingRule | None = None) -> Parts:
    """Agents, workers and plan of a training.

    Args:
        config: Settings of the training.
        rule: Which policy plays which agent, in place of `config.mapping`, such as a function.
    """
    _check(config)
    mapping = PolicyMapping(config.mapping if rule is None else rule, list(config.policies))
    if config.has_remote_actors:
        with make_training_env(config, mapping) as env:
            agents = make_agents(config, env, config.seed)
        factories = [MultiAgentWorkerFactory(config, mapping, number) for number in range(config.placement.workers)]
        group = WorkerGroup(factories, worker_resources(config))
        return Parts(agents, group, lambda: multi_agent_plan(RolloutWorkers(group, config), agents, counts=True))
    envs = [make_training_env(config, mapping, number) for number in range(config.placement.workers)]
    agents = make_agents(config, envs[0], config.seed)
    workers = [MultiAgentWorker(agents, env, config.steps_per_item, number) for number, env in enumerate(envs)]
    return Parts(agents, workers, lambda: multi_agent_plan(RolloutWorkers(workers, config), agents))


def _check(config: MultiAgentTrainConfig) -> None:
    """Refuses settings that have no meaning here."""
    multi_agent.check_placement(config)  # its trainer is made without make_trainer, too, where a rule is given
    refused = {
        "vectorization": config.vectorization if config.vectorization == "async" else None,
        "info_mask": config.info_mask,
        "alternating_sampling": config.alternating_sampling or None,
    }
    for name, value in refused.items():
        if value is not None:
            raise ConfigError(
                "this setting is for trainings of one policy",
                where=name,
                received=repr(value),
                fix="leave it out" + ("; masks are a leaf of observations" if name == "info_mask" else ""),
            )


class PPOOfPolicy(AgentLearner[PPO]):
    """A PPO agent as a learner whose weights say which policy they are of."""

    def __init__(self, agent: PPO, policy: str, counts: bool) -> None:
        super().__init__(agent, counts)
        self.policy = policy

    def get_weights(self) -> dict[str, Any]:
        """The weights and counters that acting needs, and the name of the policy."""
        return {"policy": self.policy, **super().get_weights()}


class DQNOfPolicy(GraphLearner):
    """A DQN agent as a learner whose weights say which policy they are of."""

    def __init__(self, agent: DQN, policy: str, counts: bool) -> None:
        super().__init__(agent, counts)
        self.policy = policy

    def get_weights(self) -> dict[str, Any]:
        """The weights and counters that acting needs, and the name of the policy."""
        return {"policy": self.policy, **super().get_weights()}


class CountJointSteps(Operator):
    """Counts steps of environments, all agents together."""

    at_source: ClassVar[bool] = False

    def __init__(self, agents: PolicyAgents) -> None:
        self.agents = agents

    def __call__(self, item: PolicyBatches) -> PolicyBatches:
        """Counts, and passes the item on."""
        self.agents.joint_steps += item.joint_steps
        return item


def ppo_branch(steps: Stream, workers: Workers, learner: PPOOfPolicy) -> Stream:
    """Steps packed into rollouts, then one update on each."""
    agent = learner.agent
    pack = PackSequences if agent.recurrent else PackTrajectories
    packed = steps.for_each(pack(agent.config.rollout_steps, agent.num_envs))
    return packed.for_each(TrainOneStep(learner, workers)).named(f"train_{learner.policy}")


def policy_branch(selected: Stream, workers: Workers, agent: Agent, policy: str, counts: bool) -> Stream:
    """The branch of the plan that trains one policy, on its part of the rollouts."""
    if isinstance(agent, DQN):
        return dqn_branch(selected, workers, DQNOfPolicy(agent, policy, counts), name=f"train_{policy}")
    assert isinstance(agent, PPO)
    return ppo_branch(selected, workers, PPOOfPolicy(agent, policy, counts))


def multi_agent_plan(workers: RolloutWorkers, agents: PolicyAgents, counts: bool = False) -> ReportMetrics:
    """Trains every policy by its own algorithm on its part of the same rollouts.

    The slides split the stream while it is still at its sources. Here a split gathers first, in rounds, so that no
    policy's rollouts are sampled again for another, and branches get copies, so that none sees another's changes.
    """
    joint = workers.rollouts().gather("sync").for_each(CountJointSteps(agents))
    branches = [
        policy_branch(stream.select(policy), workers, agents[policy], policy, counts)
        for policy, stream in zip(agents, joint.split(len(agents)), strict=True)
    ]
    return ReportMetrics(Union(*branches), workers)


# -- training ----------------------------------------------------------------------------------------------------


def evaluate_players(
    config: MultiAgentTrainConfig,
    players: dict[str, GroupAct],
    episodes: int,
    seed: int,
    mapping: PolicyMapping | None = None,
) -> Evaluation:
    """Plays episodes in copies of their own.

    Args:
        config: Settings of the training.
        players: The player of each policy.
        episodes: How many episodes.
        seed: Seed of the environments.
        mapping: Which policy plays which agent; None: as the settings say.
    """
    mapping = mapping or PolicyMapping(config.mapping, list(config.policies))
    factory = functools.partial(make_env, config, mapping, min(episodes, config.num_envs))
    return evaluate_together(players, factory, episodes, seed)


class MultiAgentTrainer(PlanTrainer):
    """Trains several policies; see `PlanTrainer`.

    Args:
        config: Settings of the training.
        run: Where checkpoints go; None writes nothing.
        rule: As in `make_parts`.
    """

    agent: PolicyAgents

    def __init__(
        self, config: MultiAgentTrainConfig, run: RunDirectory | None, rule: MappingRule | None = None
    ) -> None:
        self._mapping = PolicyMapping(config.mapping if rule is None else rule, list(config.policies))
        super().__init__(config, run, functools.partial(make_parts, rule=rule))

    def _prepare_agent(self) -> None:
        for agent in self.agent.values():
            set_threads(self.config, agent)

    def train(self) -> Iterator[Report]:
        """Trains to `config.steps`; reports also say how many steps environments took, all agents together."""
        for report in super().train():
            yield {**report, "joint_steps": self.agent.joint_steps}

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Plays episodes greedily with all policies, in copies of their own."""
        assert isinstance(self.config, MultiAgentTrainConfig)
        return evaluate_players(self.config, self.agent.greedy_players(), episodes, seed, self._mapping)

    def find_method(self, method: str | None) -> tuple[Any, str | None]:
        """The executor of ``"policy/method"``, and the method; by default that of the first policy."""
        agent, name = (next(iter(self.agent.values())), None) if method is None else self.agent.find(method)
        return agent.executor, name or None

    def explain(self) -> str:
        """How the component graphs were built, one after the other."""
        return "\n".join(f"policy {policy}\n{agent.executor.explain()}" for policy, agent in self.agent.items())


multi_agent = Algorithm(
    "multi-agent",
    "several policies side by side, each trained by PPO or DQN, on environments with PettingZoo's parallel API",
    MultiAgentTrainConfig,
    make_parts=make_parts,
    trainer=MultiAgentTrainer,
    evaluate=evaluate_players,
    find_env=resolve_parallel,
    presets=PresetFile(__file__),
)
