"""Placements as data: which process holds which fragment of an algorithm, and the settings that choose one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import model_validator

from rlweave.errors import ConfigError
from rlweave.plugins import imported
from rlweave.settings.config import Config, setting

if TYPE_CHECKING:
    from rlweave.algorithms.algorithm import Algorithm

#: The request to measure placements and to take the fastest; it is no placement itself.
AUTO_PLACEMENT: Final = "auto"
PlacementName = Literal[
    "local",
    "environments_apart",
    "fused",
    "single_learner_coarse",
    "single_learner_fine",
    "multi_learner",
    "parameter_server",
]
FragmentName = Literal["environments", "policy", "learner", "memory"]
#: The driver is the process of the training; of workers, environment processes, ranks (learners) and shards of the
#: parameters there may be many.
Process = Literal["driver", "worker", "environment process", "program", "rank", "shard"]


class ServerConfig(Config):
    """The server that acts for workers which only step environments."""

    batch_size: int | None = setting(
        None, "environments that are acted for at once, as whole workers; null: all", ge=1, unit="environments"
    )
    wait: float | None = setting(
        None, "how long it waits for a whole batch, from the first worker that asks on; null: as long as it takes",
        gt=0.0, unit="seconds",
    )  # fmt: skip


class PlacementConfig(Config):
    """The placement of a training; a plain text in its place is its name."""

    name: PlacementName | Literal["auto"] = setting(
        "local",
        "where environments, policy and learner run: local, in this process; environments_apart, each environment in a "
        "process of its own; fused, all as one compiled program; single_learner_coarse, environments and policy in "
        "workers with agents of their own (always so on Ray); single_learner_fine, only environments in workers, and a "
        "server beside the learner that acts for all of them; multi_learner, several learners with workers of their "
        "own, which learn as one; parameter_server, workers compute gradients, and shards of the parameters apply them "
        "(older gradients than otherwise); auto, the fastest of the others in a short measurement, with engine ray "
        "also of those on Ray",
    )
    measure_seconds: float = setting(
        6.0, "how long auto trains in each placement in order to compare them", gt=0.0, unit="seconds"
    )
    workers: int = setting(
        1, "workers that share num_envs (of each learner); 1 with engine ray is one process beside this one", ge=1
    )
    server: ServerConfig = setting(ServerConfig(), "with placement single_learner_fine, the server that acts")
    learners: int = setting(1, "learners that share num_envs and batches, with placement multi_learner", ge=1)
    rank_failure: Literal["stop", "shrink"] = setting(
        "stop",
        "what happens when one of several learners fails: stop ends the training, shrink goes on with the others",
    )
    rank_timeout: float = setting(
        300.0, "how much later than the others a learner may be; longer than its first update", gt=0.0, unit="seconds"
    )
    shards: int = setting(1, "parts of the parameters, each with its optimizer, with placement parameter_server", ge=1)
    shard_failure: Literal["stop", "replace"] = setting(
        "stop",
        "what happens when a shard fails, or does not answer for worker_timeout: stop ends the training, replace "
        "restarts the shard from its last snapshot, and counts the updates that it has lost",
    )
    shard_snapshots: int = setting(
        10, "updates between two snapshots of a shard, where shard_failure is replace", ge=1, unit="updates"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


def spell_out(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings in which a placement that is a plain name is a section, which others can be merged into.

    >>> spell_out({"seed": 3, "placement": "fused"})
    {'seed': 3, 'placement': {'name': 'fused'}}
    """
    own = settings.get("placement")
    return {**settings, "placement": {"name": own}} if isinstance(own, str) else dict(settings)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the fragments of an algorithm run.

    Attributes:
        name: As in settings.
        summary: What is where, in one line.
        fragments: The process that holds each fragment.
        needs: The field of `Algorithm` without which an algorithm has no such form; empty: each has it.
        without: What is said of an algorithm that has no such form.
        takes_workers: Whether there may be several workers.
        takes_learners: Whether there may be several learners.
        learns_alike: Whether weights become what they become in the others, but for rounding and random numbers: `auto`
            chooses among these.
        on_ray: Whether it may be asked for on Ray, where workers have agents of their own.
        parts: Makes the parts of a training, of settings and an algorithm, as "module:function"; None: the algorithm's
            own plan, with workers here or elsewhere.
    """

    name: PlacementName
    summary: str
    fragments: Mapping[FragmentName, Process]
    needs: str = ""
    without: str = ""
    takes_workers: bool = True
    takes_learners: bool = False
    learns_alike: bool = True
    on_ray: bool = False
    parts: str | None = None

    def fits(self, algorithm: Algorithm) -> bool:
        """Whether an algorithm has a form of this kind."""
        return not self.needs or getattr(algorithm, self.needs) is not None

    def check(self, algorithm: Algorithm) -> None:
        """Checks that an algorithm can be placed like this.

        Raises:
            ConfigError: It cannot: says why, where else it runs, and which algorithms can.
        """
        if not self.fits(algorithm):
            others = [name for name, other in PLACEMENTS.items() if other.fits(algorithm)]
            raise ConfigError(
                f"{algorithm.name} has no {self.name} form: {self.without}",
                where="placement.name",
                received=self.name,
                fix=f"use placement {_or(others)}; or an algorithm that has this form: {_or(self._algorithms())}",
            )

    def _algorithms(self) -> list[str]:
        names: list[str] = imported("rlweave.algorithms.registry:algorithm_names")()
        get = imported("rlweave.algorithms.registry:get_algorithm")
        return [name for name in names if self.fits(get(name))]


def _or(names: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "none"


PLACEMENTS: dict[PlacementName, Placement] = {
    own.name: own
    for own in (
        Placement(
            "local",
            "everything in this process",
            {"environments": "driver", "policy": "driver", "learner": "driver", "memory": "driver"},
            on_ray=True,
        ),
        Placement(
            "environments_apart",
            "each environment in a process of its own, beside one agent; numbers cross in shared memory",
            {"environments": "environment process", "policy": "driver", "learner": "driver", "memory": "driver"},
            needs="worker",
            without="its environments are those of several agents, or of its trials",
        ),
        Placement(
            "fused",
            "environments, policy and learner as one compiled program",
            {"environments": "program", "policy": "program", "learner": "program", "memory": "program"},
            needs="fused",
            without="its environments step outside of the graph",
            takes_workers=False,
            parts="rlweave.algorithms.fused:fused_parts",
        ),
        Placement(
            "single_learner_coarse",
            "workers act in their environments with agents of their own; one learner",
            {"environments": "worker", "policy": "worker", "learner": "driver", "memory": "driver"},
            on_ray=True,
        ),
        Placement(
            "single_learner_fine",
            "workers step environments, and a server beside the learner acts for all of them in batches",
            {"environments": "worker", "policy": "driver", "learner": "driver", "memory": "driver"},
            needs="served",
            without="its workers use their agent for more than to act",
            on_ray=True,
            parts="rlweave.algorithms.single_learner_fine:single_learner_fine_parts",
        ),
        Placement(
            "multi_learner",
            "several learners, each with workers in its process, which learn as one from the batches of all",
            {"environments": "rank", "policy": "rank", "learner": "rank", "memory": "rank"},
            needs="ranked",
            without="its update is not a mean over rows that several learners could share",
            takes_learners=True,
            on_ray=True,
            parts="rlweave.algorithms.multi_learner:multi_learner_parts",
        ),
        Placement(
            "parameter_server",
            "workers compute gradients with agents of their own, shards of the parameters apply them",
            {"environments": "worker", "policy": "worker", "learner": "shard", "memory": "driver"},
            needs="gives_gradients",
            without="its update is not one optimizer step with the gradients of a rollout, which a worker could send",
            learns_alike=False,
            on_ray=True,
            parts="rlweave.algorithms.parameter_server:parameter_server_parts",
        ),
    )
}
"""All placements by name."""


def placement_of(config: Any) -> Placement:
    """The placement of a training.

    Args:
        config: Its settings.

    Raises:
        ConfigError: It is `auto`, which is settled where a training begins.
    """
    name = config.placement.name
    if name == AUTO_PLACEMENT:
        raise ConfigError(
            "placements are measured when a training begins, by rlweave train and rlweave.train",
            where="placement.name",
            received=name,
            fix=f"name one here: {_or(list(PLACEMENTS))}",
        )
    return PLACEMENTS[name]
