"""Which weights an update moves, and which it leaves as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.testing.checks.agents.learning import NO_RATE
from rlweave.testing.checks.agents.subject import AgentSubject
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.rows import listed
from rlweave.tree import tree_leaves

State = Mapping[str, np.ndarray]
#: Updates in which all that learns has to move; a policy may learn in every second one only.
FEWEST, MOST = 4, 12
#: More environment steps than any target network waits for.
LONG_AFTER = 1_000_000
#: Updates after which a target network has to have moved, whatever the settings say.
LONGEST_WAIT = 1_000


def weights_move(subject: AgentSubject) -> Iterator[Finding]:
    """Updates move every trainable variable, and target networks towards the networks that they follow."""
    agent = subject.fresh()
    if not subject.observations_vary and not any(np.any(x) for x in tree_leaves(subject.batches[0]["observations"])):
        return  # zeros pass no gradient through a network
    states = _states_of_updates(agent, subject)
    agent.count_steps(LONG_AFTER)  # now a copy that waits for steps is due
    agent.learn(subject.batches[0])
    later = agent.executor.state_dict()
    still = [path for path in _trainable(agent) if _equal(states[0][path], states[-1][path])]
    still += _still_copies(agent, subject, states[0], {online for _, online in _copies(agent)} - set(still))
    if still:
        yield Finding(
            "weights move",
            listed(still),
            f"{len(states)} updates left {len(still)} variables that learn, or follow what learns, as they were",
            Cause.WEIGHTS_STAY,
            "pass them to the optimizer: optimizer.step(loss, component.variables()), of all components that learn; a "
            "component that is not to learn has trainable=False; sync(source, tau) moves a target network",
        )
    yield from _copies_follow(agent, states, later)
    yield from _policy_waits(agent, states)


def _states_of_updates(agent: Agent, subject: AgentSubject) -> list[State]:
    """What an agent holds before and after each of some updates, without further steps of environments."""
    states: list[State] = [agent.executor.state_dict()]
    fewest = max(FEWEST, 2 * getattr(agent.config, "policy_delay", 1))
    while len(states) <= fewest or (
        len(states) <= MOST and any(_equal(states[0][path], states[-1][path]) for path in _trainable(agent))
    ):
        agent.learn(subject.batches[len(states) % 2])
        states.append(agent.executor.state_dict())
    return states


def _trainable(agent: Agent) -> list[str]:
    return [path for path, cell in agent.executor.store.cells.items() if cell.trainable and np.size(cell.value)]


def _copies(agent: Agent) -> Iterator[tuple[str, str]]:
    """Variables of target networks, each with the one that it is a copy of."""
    cells = agent.executor.store.cells
    for path in cells:
        online = path.replace("target-", "", 1)
        if online != path and online in cells and cells[online].trainable:
            yield path, online


def _still_copies(agent: Agent, subject: AgentSubject, start: State, moved: set[str]) -> list[str]:
    """Variables of target networks that stay where they were, however many updates there are."""
    most = min(getattr(agent.config, "target_update_interval", MOST), LONGEST_WAIT)  # of updates, or of steps
    for _ in range(most):
        now = agent.executor.state_dict()
        still = [path for path, online in _copies(agent) if online in moved and _equal(start[path], now[path])]
        if not still:
            break
        agent.learn(subject.batches[0])
    return still


def _copies_follow(agent: Agent, states: list[State], later: State) -> Iterator[Finding]:
    """Targets move only towards what they follow, which never jumps to them; and those that are to wait do so."""
    waits = getattr(agent.config, "target_update_interval", 1) > 1 or getattr(agent.config, "tau", 1) < 1
    moves = [*pairwise(states), (states[-1], later)]
    set_back, astray, at_once = [], [], []
    for path, online in _copies(agent):
        if any(_is_set_to(one, two, online, path) for one, two in moves):
            set_back.append(online)
        elif any(not _follows(one[path], two[path], two[online]) for one, two in moves):
            astray.append(path)
        elif waits and all(_moves_to(one, two, path, online) for one, two in pairwise(states)):
            at_once.append(path)
    if set_back:
        seen = "an update set them to their copies in a target network"
        yield _wrong_move(set_back, seen, "sync the target network from the one that learns, not the other way round")
    if astray:
        seen = "they moved in an update, and not towards the network which they are a copy of"
        fix = "leave the target network out of the optimizer's variables: only sync(source, tau) moves it"
        yield _wrong_move(astray, seen, fix)
    if at_once:
        seen = f"after each of {len(states) - 1} updates, with no step of an environment between them, they were equal "
        seen += "to the network which they are a copy of: there is no target network"
        fix = "sync the target network after so many steps, or by a small share (tau) at each update"
        yield _wrong_move(at_once, seen, fix)


def _policy_waits(agent: Agent, states: list[State]) -> Iterator[Finding]:
    """Where an agent has a `policy_delay`, its policy moves in so many updates once."""
    delay = getattr(agent.config, "policy_delay", 1)
    prefix = f"{agent.executor.root.path}/policy/"
    paths = [path for path in _trainable(agent) if path.startswith(prefix)]
    moved = [any(not _equal(one[path], two[path]) for path in paths) for one, two in pairwise(states)]
    whole = len(moved) // delay * delay
    if paths and sum(moved[:whole]) > whole // delay:
        seen = f"they moved in {sum(moved[:whole])} of {whole} updates, and policy_delay={delay}"
        fix = "count each update once, and let the policy learn where the count is a multiple of policy_delay"
        yield _wrong_move(paths, seen, fix)


def _wrong_move(paths: list[str], seen: str, fix: str) -> Finding:
    return Finding("weights move", listed(paths), seen, Cause.WRONG_WEIGHTS_MOVE, fix)


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


def _is_set_to(before: State, after: State, online: str, copy: str) -> bool:
    """Whether what learns has the numbers of its copy now, which did not move, and had others before."""
    return (
        _equal(after[online], after[copy])
        and _equal(before[copy], after[copy])
        and not _equal(before[online], after[online])
    )


def _moves_to(before: State, after: State, path: str, online: str) -> bool:
    return _equal(after[path], after[online]) and not _equal(before[path], after[path])


def _follows(before: np.ndarray, after: np.ndarray, online: np.ndarray) -> bool:
    """Whether all entries of a copy went the same share of the way to what it follows, up to rounding."""
    way, gone = online - before, after - before
    far = np.abs(way) > 1e-5
    if not far.any():
        return bool(np.all(np.abs(gone) <= np.abs(way) + 1e-6))
    share = float(np.median(gone[far] / way[far]))
    return -1e-3 <= share <= 1 + 1e-3 and bool(np.all(np.abs(gone - share * way) <= 1e-6 + 0.02 * np.abs(way)))


def own_rates_hold(subject: AgentSubject) -> Iterator[Finding]:
    """A component with a learning rate of its own, `X_lr`, stays where that is tiny: no other loss moves it.

    Settings are written with underscores, scopes of components with hyphens.
    """
    fields = type(subject.unbuilt.config).model_fields
    for name in (name for name in fields if name.endswith("_lr")):
        agent = subject.trial.agent(settings={name: NO_RATE})
        prefix = f"{agent.executor.root.path}/{name.removesuffix('_lr').replace('_', '-')}/"
        paths = [path for path in _trainable(agent) if path.startswith(prefix)]
        before = agent.executor.state_dict()
        for batch in subject.batches if paths else ():
            agent.learn(batch)
        after = agent.executor.state_dict()
        moved = [path for path in paths if not np.allclose(before[path], after[path], rtol=0, atol=NO_RATE**0.5)]
        if moved:
            yield Finding(
                "own rates hold",
                listed(moved),
                f"with {name}={NO_RATE:g} updates moved {len(moved)} variables of it",
                Cause.WRONG_WEIGHTS_MOVE,
                "detach them in the losses of other components (ops.stop_gradient), and give each optimizer the "
                "variables of its own component alone",
            )
