"""Placements as data: which process holds which fragment of an algorithm, and the settings that choose one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Protocol

from pydantic import model_validator

from rlweave.agents.agent import AUTO
from rlweave.errors import ConfigError
from rlweave.plugins import imported
from rlweave.settings.config import Config, setting

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
#: What may happen when a process of a training fails.
OnError = Literal["stop", "replace", "shrink"]
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
    on_error: OnError | None = setting(
        None,
        "what happens when a process of the training fails, a worker, a learner, a rank or a shard: stop ends the "
        "training, replace restarts it in place, shrink goes on with the others; null: stop (of a population: replace)",
    )
    rank_timeout: float = setting(
        300.0, "how much later than the others a learner may be; longer than its first update", gt=0.0, unit="seconds"
    )
    shards: int = setting(1, "parts of the parameters, each with its optimizer, with placement parameter_server", ge=1)
    shard_snapshots: int = setting(
        10, "updates between two snapshots of a shard, from the last of which it is restarted", ge=1, unit="updates"
    )

    renamed: ClassVar[Mapping[str, str]] = dict.fromkeys(("rank_failure", "shard_failure"), "placement.on_error")

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
class Refused:
    """Values of a setting that have no meaning in a placement.

    Attributes:
        key: The setting, dotted.
        why: Why it has none.
        takes: The values that it may have.
        when: Whether a value is refused, in place of `takes`.
        fix: What to do.
    """

    key: str
    why: str
    takes: tuple[Any, ...] = (None,)
    when: Callable[[Any], bool] | None = None
    fix: str = "leave it out"

    def check(self, config: Any, placement: str) -> None:
        """Checks the settings of a training, which may lack this one.

        Raises:
            ConfigError: The value is refused.
        """
        value = config
        for name in self.key.split("."):
            if not hasattr(value, name):
                return
            value = getattr(value, name)
        if self.when(value) if self.when is not None else value not in self.takes:
            raise ConfigError(self.why, where=self.key, received=f"{value}, with placement {placement}", fix=self.fix)


class Placeable(Protocol):
    """An algorithm, as far as placements know it; of which forms it has, `Placement.needs` names the field."""

    @property
    def name(self) -> str:
        """Its registered name."""


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
        refuses: Settings that have no meaning in it.
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
    refuses: tuple[Refused, ...] = ()
    parts: str | None = None

    def check_settings(self, config: Any) -> None:
        """Checks that no setting of a training belongs to other placements only.

        Raises:
            ConfigError: One does.
        """
        for refused in self.refuses:
            refused.check(config, self.name)

    def fits(self, algorithm: Placeable) -> bool:
        """Whether an algorithm has a form of this kind."""
        return not self.needs or getattr(algorithm, self.needs) is not None

    def check(self, algorithm: Placeable) -> None:
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
            refuses=(
                Refused("gather", "a fused training gathers nothing: there are no workers"),
                Refused("max_lag", "a fused training gathers nothing: there are no workers"),
                Refused(
                    "alternating_sampling",
                    "environments of a fused training are part of its program, and do not step by turns",
                    (False,),
                ),
                Refused("info_metrics", "environments of a fused training have no infos", ([],)),
                Refused(
                    "vectorization",
                    "environments of a fused training are part of its program, and have no processes",
                    (None, "sync"),
                ),
                Refused(
                    "placement.on_error", "a fused training is one process, which nothing outlives", (None, "stop")
                ),
            ),
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
            refuses=(
                Refused("alternating_sampling", "the server acts for some workers while others step", (False,)),
                Refused("rollouts_ahead", "the server acts on the newest weights, and collects nothing ahead", (1,)),
                Refused("max_lag", "the server acts on the newest weights"),
            ),
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
            refuses=(
                Refused("microbatch_size", "micro-batches give gradients, which ranks do not average"),
                Refused("learner", "each learner is in the process of its rank", ("here",)),
                Refused("broadcast_interval", "workers act on the weights of their own learner", (1,)),
                Refused(
                    "agent.acting_backend",
                    "the fastest acting backend is measured in the driver, but each rank has an agent of its own",
                    when=lambda backend: backend == AUTO,
                    fix="name a backend: --set agent.acting_backend=numpy (or onnx)",
                ),
                Refused(
                    "agent.priority_beta",
                    "each rank has a memory of its own, whose insertions are not those of all",
                    when=lambda beta: isinstance(beta, Mapping),
                    fix="choose a number",
                ),
                Refused(
                    "placement.on_error",
                    "a rank cannot be restarted: the others have gone on without what it alone knows",
                    (None, "stop", "shrink"),
                    fix="--set placement.on_error=shrink, or stop",
                ),
            ),
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
            refuses=(
                Refused(
                    "agent.normalize_observations",
                    "workers send gradients, and no observations to keep statistics of",
                    (False,),
                    fix="leave it out, or use another placement",
                ),
                Refused(
                    "agent.replicas",
                    "each worker computes gradients of its own rollouts, on one device",
                    fix="leave it out, and choose the number of workers",
                ),
                Refused(
                    "agent.device",
                    "a shard has no components that could be on different devices",
                    when=lambda device: isinstance(device, dict),
                    fix="name one device",
                ),
                Refused(
                    "placement.on_error",
                    "nobody else has the parameters of a shard, without which nothing goes on",
                    (None, "stop", "replace"),
                    fix="--set placement.on_error=replace, or stop",
                ),
            ),
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
