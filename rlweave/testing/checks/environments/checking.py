"""`check_env`: all checks of one environment."""

from __future__ import annotations

from typing import Any

from rlweave.testing.checks.environments.advice import advise
from rlweave.testing.checks.environments.autoreset import check_rows
from rlweave.testing.checks.environments.effects import check_effects
from rlweave.testing.checks.environments.ends import check_ends
from rlweave.testing.checks.environments.inspection import Inspection
from rlweave.testing.checks.environments.memory import check_memory
from rlweave.testing.checks.environments.players import Player, SinglePlayer, quiet, refuse
from rlweave.testing.checks.environments.repeating import check_repeats, check_saved_state
from rlweave.testing.checks.environments.several_agents import ParallelPlayer, check_agents
from rlweave.testing.checks.environments.sources import subject_of
from rlweave.testing.checks.environments.vectors import GraphPlayer, GymVectorPlayer, OwnVectorPlayer
from rlweave.testing.checks.environments.watching import speed, watch
from rlweave.testing.checks.findings import Cause, Report


def check_env(env: Any, seed: int = 0, steps: int = 1000) -> Report:
    """Checks an environment for the bugs that nobody notices in a training curve.

    It is played with random actions, then again and again from the same seed: after other episodes, beside another
    environment, with its arrays written into, from a saved state, with its clock set back.

    Args:
        env: An id of Gymnasium (`"CartPole-v1"`), `"module:function"` or `"module:Class"`; a class or function that
            makes an environment; or an environment, of which fewer things can be checked. Environments of Gymnasium,
            its vector environments and rlweave's, those in ops (`rlweave.envs.in_graph`), and of PettingZoo (parallel).
        seed: Seeds environments and actions.
        steps: Steps that are played at first; the other checks repeat the beginning.

    Returns:
        What was found. An error that the environment raises is a finding, too.

    Raises:
        EnvError: There is no such environment, or it is none.

    >>> check_env("rlweave/Catch-v0", steps=100).ok
    True
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise refuse("a number of steps is a whole number above zero", f"steps={steps!r}", "leave it out: 1000")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise refuse("a seed is a whole number from 0 on", f"seed={seed!r}", "leave it out: 0")
    inspection = Inspection(subject_of(env), seed, steps)
    with quiet(), inspection.check("construction"):
        _check(inspection, inspection.subject.make())
    return inspection.finish()


def _check(inspection: Inspection, player: Player) -> None:
    inspection.player = player
    watch(inspection, player)
    speed(inspection, player)
    advise(inspection, player)
    failed = inspection.found(Cause.CANNOT_RUN)
    if inspection.subject.repeats:
        with inspection.check("close"):
            player.close_or_fail()
    if failed:
        inspection.skip("everything else", "it failed")
        return
    repeats = check_repeats(inspection)
    again = repeats and inspection.subject.repeats
    if isinstance(player, SinglePlayer):
        check_ends(inspection, repeats)
    elif isinstance(player, (GymVectorPlayer, OwnVectorPlayer, GraphPlayer)):
        if isinstance(player, GymVectorPlayer) and not player.has_arrays:
            reason = "rows of Sequence, Text, Graph and OneOf spaces come as tuples, not as arrays"
            inspection.skip("rows that ended, and their neighbours", reason)
        else:
            check_rows(inspection, player, again)
    elif isinstance(player, ParallelPlayer):
        check_agents(inspection)
    if again:
        check_effects(inspection)
        if inspection.found(Cause.ENVIRONMENTS_SHARE):
            inspection.skip("a saved state goes on", "environments share state")
        else:
            check_saved_state(inspection)
        check_memory(inspection)
    else:
        reason = "it needs new environments that repeat themselves"
        for check in ("actions have an effect", "a saved state goes on", "writing into observations"):
            inspection.skip(check, reason)
