"""What `rlweave plan --explain` says of a placement: its fragments and processes, and what crosses their borders."""

from __future__ import annotations

import typing
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.replay_agent import ReplayAgent
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.placements import PLACEMENTS, FragmentName, Placement, Process, placement_of
from rlweave.envs.batching import batch_codec
from rlweave.envs.shared_batches import can_share
from rlweave.errors import BackendError, SpaceError
from rlweave.flow import Gradients, ItemReference, LearnerActor, Operator, ReportMetrics
from rlweave.flow.gather_modes import GatherAsync
from rlweave.flow.item_types import type_name
from rlweave.flow.parameter_shards import CALLS_AHEAD, ApplyAtShard
from rlweave.flow.plan_graph import PlanGraph, edge_capacity, messages_of, table
from rlweave.flow.sources import ShardSource
from rlweave.graph import build
from rlweave.spaces import Space
from rlweave.spaces.gymnasium_spaces import to_gymnasium
from rlweave.tree import tree_leaves

#: A reward and two flags of a step: of items, where a reward is a float32, and in shared memory, where it is a float64
#: and the flags are bits of one byte.
_REWARD_AND_FLAGS, _SHARED_REWARD_AND_FLAGS = 6, 9
#: Two more flags of a step: whether it is a transition, and whether an episode starts after it.
_VALID_AND_START = 2
_ENVIRONMENT_SEED = "seed, worker, environment"
_ENDS = "the training ends"
Row = tuple[str, ...]
_FRAGMENTS_HEAD = ("fragment", "process", "processes", "device", "random stream", "when it fails")
_BORDERS_HEAD = ("from", "to", "what crosses", "bytes", "how", "capacity", "most lag", "when it fails")


def explain_placement(config: TrainConfig, plan: ReportMetrics, agent: Any) -> str:
    """Two tables: fragments with processes, devices, random streams and failures; and borders between processes.

    Args:
        config: Settings of the training.
        plan: Its plan.
        agent: Its agent; not built.
    """
    placement, fragments, borders = placement_rows(config, plan, agent)
    text = f"Placement {placement.name}: {placement.summary}\n{table([_FRAGMENTS_HEAD, *fragments])}"
    if borders:
        text += f"\n\nBorders\n{table([_BORDERS_HEAD, *borders])}"
    shards = _shards(plan.graph)
    if shards:
        text += f"\n\nShards of the parameters\n{table([('shard', 'bytes', 'variables'), *shards])}"
    return text + "\n"


def placement_rows(config: TrainConfig, plan: ReportMetrics, agent: Any) -> tuple[Placement, list[Row], list[Row]]:
    """The placement, and the rows of its two tables, fragments and borders; see `explain_placement`."""
    on_cluster = config.engine != "local" and config.placement.name == "local"
    placement = PLACEMENTS["single_learner_coarse"] if on_cluster else placement_of(config)
    rows = [_fragment(config, plan.graph, *pair) for pair in placement.fragments.items() if pair[0] != "memory"]
    rows += _memory(plan.graph, agent, placement.fragments["memory"])
    borders = [*_of_environments(config, agent), *_of_workers(config, plan.graph, agent), *_of_server(config, agent)]
    return placement, rows, borders


def _fragment(config: TrainConfig, graph: PlanGraph, fragment: FragmentName, process: Process) -> Row:
    number = {"rank": config.placement.learners, "shard": config.placement.shards}.get(process, 1)
    where: str = process
    if process == "worker":
        number = config.placement.workers
        where = "worker" if config.engine != "local" else "worker (in this process)"
    if fragment == "environments" and process != "program" and config.has_environments_apart:
        process = where = "environment process"
        number = config.num_envs
    rule = _rule(config, process)
    if (
        fragment == "learner"
        and process != "shard"
        and any(isinstance(node.trains, LearnerActor) for node in graph.nodes)
    ):
        where, rule = "learner's actor", _learner_rule(config)
    return fragment, where, str(number), _device(config, fragment, process), _stream(config, fragment, process), rule


def _memory(graph: PlanGraph, agent: Any, process: Process) -> list[Row]:
    shards = [str(len(node.memory)) for node in graph.nodes if isinstance(node, ShardSource)]
    if shards:
        return [("memory", "shard", *shards, "host: numpy", "seed, shard", "the rule of its source")]
    if not isinstance(agent, ReplayAgent):
        return []
    return [("memory", process, "1", "as the learner" if process == "program" else "host: numpy", "seed", _ENDS)]


def _device(config: TrainConfig, fragment: FragmentName, process: Process) -> str:
    if process != "program" and fragment == "environments":
        return "host"
    agent = getattr(config, "agent", None)
    acting = getattr(agent, "acting_backend", None) if fragment == "policy" and process != "program" else None
    if acting is not None or process == "worker":
        return str(acting or config.backend)
    device, replicas = getattr(agent, "device", None), getattr(agent, "replicas", None)
    number = len(replicas) if isinstance(replicas, list) else replicas
    return config.backend + (f": {device}" if device else "") + (f", {number} devices" if replicas else "")


def _stream(config: TrainConfig, fragment: FragmentName, process: Process) -> str:
    if fragment == "environments" and process != "program":
        return "seed, environment" if config.placement.name == "single_learner_fine" else _ENVIRONMENT_SEED
    return {"worker": "seed, worker", "shard": "-"}.get(process, "seed")


def _rule(config: TrainConfig, process: Process) -> str:
    if process == "environment process":
        return f"{config.env_failure}, after {config.env_timeout:g} s"
    if process == "worker" and config.engine != "local":
        return f"{config.on_error}, after {config.worker_timeout:g} s"
    if process == "rank":
        return f"{config.on_error}, after {config.placement.rank_timeout:g} s"
    if process == "shard":
        return f"{config.on_error}, after {config.worker_timeout:g} s"
    return _ENDS


def _learner_rule(config: Any) -> str:
    return f"{config.on_error}, after {config.learner_timeout:g} s"


def _of_environments(config: TrainConfig, agent: Any) -> list[Row]:
    """What crosses the borders of environments that have processes of their own: shared memory."""
    if not config.has_environments_apart or not isinstance(agent, Agent):
        return []
    holder = "worker" if config.has_remote_actors or config.placement.name == "single_learner_fine" else "driver"
    common = "sync, shared memory", "1 each", "0", f"{config.env_failure}, after {config.env_timeout:g} s"
    observations = _bytes(agent.observation_space, _SHARED_REWARD_AND_FLAGS)
    return [
        (holder, "environment process", "action", _shared_action_bytes(agent.action_space), *common),
        ("environment process", holder, "observation, reward, flags", observations, *common),
    ]


def _of_workers(config: TrainConfig, graph: PlanGraph, agent: Any) -> list[Row]:
    """What crosses the borders of workers with agents of their own, as the plan has it."""
    if config.placement.name == "multi_learner":
        _, size = _variable_bytes(agent)
        return [("rank", "rank", "gradients", size, "sync, all-reduce", "1", "0", _rule(config, "rank"))]
    if not config.has_remote_actors:
        return []
    rows: list[Row] = _of_shards(config, graph)
    if rows:
        return rows
    weights, gradients = _variable_bytes(agent)
    for node in graph.nodes:
        for port in node.inputs:
            if port.node.runs_at == node.runs_at:
                continue
            places = _place(port.node), _place(node)
            lag, how, rule, size = "-", "async", _rule(config, "worker"), "-"
            whole = gradients if port.item_type is Gradients else _item_bytes(config, agent)
            if "learner's actor" in places:
                rule = _learner_rule(config)
            elif isinstance(node, GatherAsync):
                lag, size = "any" if node.max_lag is None else str(node.max_lag), whole
            else:
                lag, size, how = "0", whole, "sync"
            if "shard" in places:
                lag, size, rule = "-", "-", "the rule of its source"
            what = type_name(port.item_type)
            if getattr(node, "by_reference", False):
                what, size = f"reference to {what}", "-"
            elif typing.get_origin(port.item_type) is ItemReference and places[1] == "learner's actor":
                places, size = ("worker", places[1]), whole
                what = type_name(typing.get_args(port.item_type)[0])
            rows.append((*places, what, size, how, str(edge_capacity(port, node)), lag, rule))
    for message in messages_of(graph):
        if message.receiver is not None and message.receiver.runs_at != message.sender.runs_at and not message.stored:
            places = _place(message.sender), _place(message.receiver)
            size = weights if message.what == "weights" else "-"
            rows.append((*places, message.what, size, "async", message.capacity, "-", message.when_full))
    return rows


def _of_shards(config: TrainConfig, graph: PlanGraph) -> list[Row]:
    """What crosses the borders of the shards of a parameter server: gradients, and weights."""
    nodes = [node for node in graph.nodes if isinstance(node, ApplyAtShard)]
    if not nodes:
        return []
    gathers = [node for node in graph.nodes if isinstance(node, GatherAsync)]
    apart = any(gather.by_reference for gather in gathers)
    lag = "0" if not gathers else "any" if gathers[0].max_lag is None else str(gathers[0].max_lag)
    lost, rule = _rule(config, "worker"), _rule(config, "shard")
    ahead = str(CALLS_AHEAD)
    rows: list[Row] = []
    if not apart:  # the mean of a round, and its norm, are computed in the driver
        size = f"{sum(_shard_bytes(node) for node in nodes):,}"
        rows.append(("worker", "driver", "gradients", size, "async" if gathers else "sync", "1", lag, lost))
    for node in nodes:
        shard, size = f"shard {node.number}", f"{_shard_bytes(node):,}"
        sender = "worker" if apart else "driver"
        rows.append((sender, shard, "gradients", size, "async", ahead, lag, rule))
        rows.append((shard, "worker", "weights", size, "async", "1", "-", rule))
    return rows


def _shards(graph: PlanGraph) -> list[Row]:
    """The shards of the parameters, with their bytes and variables."""
    nodes = [node for node in graph.nodes if isinstance(node, ApplyAtShard)]
    return [
        (
            str(node.number),
            f"{_shard_bytes(node):,}",
            ", ".join(path.partition("/")[2] for path in node.learner.factory.values),
        )
        for node in nodes
    ]


def _shard_bytes(node: ApplyAtShard) -> int:
    size: int = node.learner.factory.nbytes
    return size


def _of_server(config: TrainConfig, agent: Any) -> list[Row]:
    """What crosses between a server that acts and workers that only step environments; each has one item under way."""
    if config.placement.name != "single_learner_fine" or not isinstance(agent, Agent):
        return []
    rows, rule = config.num_envs // config.placement.workers, _rule(config, "worker")
    offer = _number(agent.observation_space) + _REWARD_AND_FLAGS + _VALID_AND_START
    return [
        ("worker", "driver", "Offer", f">= {rows * offer:,}", "async", "1 each", "0", rule),
        ("driver", "worker", "actions", f"{rows * _number(agent.action_space):,}", "reply", "1 each", "0", rule),
    ]


def _place(operator: Operator) -> str:
    if operator.runs_at == "sources":
        return "shard" if isinstance(operator.beside or operator, ShardSource) else "worker"
    return "learner's actor" if operator.runs_at == "learner" else "driver"


def _item_bytes(config: TrainConfig, agent: Any) -> str:
    """At least so many bytes: observations before and after, action, reward and flags of each step of an item."""
    length = getattr(getattr(config, "agent", None), "rollout_steps", None)
    steps = length * config.num_envs // config.placement.workers if length else getattr(config, "steps_per_item", None)
    if steps is None or not isinstance(agent, Agent):
        return "-"
    one = _number(agent.observation_space) * 2 + _number(agent.action_space) + _REWARD_AND_FLAGS
    return f">= {steps * one:,}"


def _variable_bytes(agent: Any) -> tuple[str, str]:
    """Bytes of the weights that acting needs, and of gradients; of an agent without a NumPy form, none."""
    if not isinstance(agent, Agent):
        return "-", "-"
    root = agent.make_root()
    try:
        built = build(root, agent.input_spaces(), backend="numpy", static=agent.static_arguments)
    except BackendError:
        return "-", "-"
    acting = tuple(f"{root.path}/{prefix}/" for prefix in agent.acting_prefixes)
    sizes = [(cell, np.asarray(cell.value).nbytes) for cell in built.store.cells.values()]
    weights = sum(size for cell, size in sizes if cell.path.startswith(acting))
    return f"{weights:,}", f"{sum(size for cell, size in sizes if cell.trainable):,}"


def _shared_action_bytes(space: Space) -> str:
    """Bytes of an action in Gymnasium's form, in which it lies in shared memory; of one with text none."""
    codec = batch_codec(to_gymnasium(space))
    if not can_share(codec):
        return "-"
    return f"{sum(leaf.nbytes for leaf in tree_leaves(codec.to_vector(codec.allocate(1), 1))):,}"


def _bytes(space: Space, more: int = 0) -> str:
    return f"{_number(space) + more:,}"


def _number(space: Space) -> int:
    """Bytes of one value; of text none."""
    total = 0
    for leaf in space.flatten().values():
        try:
            total += leaf.flat_dim * np.dtype(leaf.dtype).itemsize
        except SpaceError:
            continue
    return total
