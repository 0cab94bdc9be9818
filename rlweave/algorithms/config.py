"""Settings that all trainings share, and how the sources of settings are merged.

Precedence: defaults < tuned settings for the environment < config file < options and `--set`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

from rlweave.algorithms.placements import OnError, PlacementConfig, spell_out
from rlweave.backends import best_backend, get_backend, is_installed, offer_of
from rlweave.errors import BackendError, ConfigError
from rlweave.plugins import import_modules
from rlweave.settings.config import Config, describe_settings, setting
from rlweave.settings.ranges import FINITE
from rlweave.settings.sources import Settings, merge_settings, nest


class TrainConfig(Config):
    """Settings that all algorithms share; each algorithm adds a section `agent`."""

    renamed: ClassVar[Mapping[str, str]] = dict.fromkeys(("worker_failure", "learner_failure"), "placement.on_error")
    default_on_error: ClassVar[OnError] = "stop"

    imports: list[str] = setting(
        [], "modules to import first: components, environments and algorithms that they register can be named"
    )
    env: str = setting(help="Gymnasium id of the environment, such as CartPole-v1")
    env_options: dict[str, Any] = setting({}, "keyword arguments of the environment")
    image_layout: Literal["channels_last", "channels_first", "frames_first"] | None = setting(
        None,
        "where image observations have their channels; frames_first: stacked frames in grey, as channels; null: as the "
        "environment is known to have it (Atari games), else an error for images",
    )
    text_tokens: int = setting(32, "words kept of each text in an observation", ge=1, unit="words")
    text_buckets: int = setting(4096, "size of the table that words are hashed to", ge=2)
    info_mask: str | None = setting(
        None, "key of the environment's info with the mask of allowed actions (of Taxi: action_mask); null: none"
    )
    info_metrics: list[str] = setting(
        [],
        "numbers in the environment's info that become metrics, by name (is_success; if nested: timing/seconds): "
        "info/NAME is the mean over the last steps of the same episodes as episode_return",
    )
    num_envs: int = setting(8, "number of environments", ge=1, unit="environments")
    vectorization: Literal["sync", "async"] | None = setting(
        None,
        "how environments step: sync, in turns in their worker's process; async, for workers elsewhere: each in a "
        "process of its own (without such workers: placement environments_apart); null: sync, and for Atari games "
        "ALE's own threads",
    )
    alternating_sampling: bool = setting(
        False,
        "a worker's environments are two halves: while one half steps, the actions of the other are computed; faster "
        "where environments step in other threads or processes (Atari games, vectorization async) and a core is free; "
        "other random numbers",
    )
    env_timeout: float = setting(
        60.0,
        "time without an answer after which an environment in a process of its own counts as hanging",
        gt=0.0,
        unit="seconds",
    )
    env_failure: Literal["stop", "replace"] = setting(
        "replace",
        "what happens when such a process ends or hangs: replace, a warning names it, its episode is cut (truncated), "
        "and another process begins a new one; stop ends the training with an error",
    )
    backend: str = setting(
        best_backend(), "what computes: jax, torch, tensorflow or numpy; by default the first of them that is installed"
    )
    placement: PlacementConfig = setting(PlacementConfig(), "where it runs")
    gather: Literal["sync", "async"] | None = setting(
        None,
        "how items of several workers are collected: sync, in rounds of one each; async, as they come; null: the "
        "algorithm's own way",
    )
    max_lag: int | None = setting(
        None, "most updates that what is trained on may be behind the weights, with items gathered async; older items "
        "are dropped and counted, replayed ones excepted", ge=0, unit="updates",
    )  # fmt: skip
    engine: Literal["local", "ray"] = setting(
        "local", "where workers run: local, in turns in this process; ray, as processes (extra: ray)"
    )
    address: str = setting(
        "local", "Ray cluster: local starts one on this machine; auto or host:port joins a running one"
    )
    worker_cpus: float = setting(1.0, "cores that each worker holds on Ray", ge=0.0, unit="cores")
    worker_timeout: float = setting(600.0, "time without an answer after which a worker hangs", gt=0.0, unit="seconds")
    object_store_mb: int = setting(256, "shared memory of a local Ray cluster", ge=80, unit="MiB")
    seed: int = setting(0, "seed of weights, exploration and environments", ge=0)
    threads: int | None = setting(
        None, "threads of torch's kernels; null: 1 for small observations, else what torch chooses", ge=1
    )
    steps: int = setting(
        100_000, "length of the training; the item that reaches it, such as a rollout, is finished first", ge=0,
        unit="environment steps",
    )  # fmt: skip
    warn_after: float = setting(
        60.0, "time in which items move but none reaches the end of the plan, before a warning; 0: never", ge=0.0,
        unit="seconds",
    )  # fmt: skip
    schedule_steps: int | None = setting(
        None, "how long schedules without a length of their own are, as a run that is resumed for longer keeps them; "
        "null: as the training", ge=1, unit="environment steps",
    )  # fmt: skip
    report_every: int = setting(2_000, "interval between two rows of metrics", ge=1, unit="environment steps")
    return_window: int = setting(
        20, "latest training episodes whose mean return is reported as episode_return", ge=1, unit="episodes"
    )
    evaluate_every: int = setting(
        10_000, "interval between two greedy evaluations; they choose the best checkpoint; 0: none", ge=0,
        unit="environment steps",
    )  # fmt: skip
    evaluation_episodes: int = setting(10, "episodes of each of these evaluations", ge=1, unit="episodes")
    final_episodes: int = setting(
        20, "episodes of the greedy evaluation after training; 0: none", ge=0, unit="episodes"
    )
    checkpoint_every: int = setting(50_000, "interval between two checkpoints; 0: only at the end", ge=0,
                                    unit="environment steps")  # fmt: skip
    stop_grace: float = setting(
        10.0, "how long Ctrl-C or SIGTERM wait for a step to end; then the last whole state is saved", gt=0.0,
        unit="seconds",
    )  # fmt: skip
    disk_failure: Literal["continue", "stop"] = setting(
        "continue",
        "what happens where the disk has no room for a checkpoint or metrics: the training goes on, or stops",
    )
    keep_checkpoints: int = setting(5, "how many of the newest checkpoints stay, besides the best", ge=1,
                                    unit="checkpoints")  # fmt: skip
    save_env_state: bool = setting(
        True,
        "checkpoints hold the environments, too, where these have get_state and set_state, or nothing but plain data "
        "for attributes: episodes under way go on after a resume; false: they begin anew",
    )
    stop_at_return: float | None = setting(
        None, "end the training when an evaluation's mean return reaches this; with evaluate_every 0, when that of the "
        "latest episodes of the training does; null: never", within=FINITE,
    )  # fmt: skip
    callbacks: list[str] = setting(
        [],
        "classes as module:Class, made without arguments, that the training calls; see docs/python.md",
    )
    tensorboard: bool | None = setting(None, "write TensorBoard events; null: when tensorboardX is installed")

    @property
    def on_error(self) -> OnError:
        """What happens when a process of the training fails."""
        return self.placement.on_error or self.default_on_error

    @property
    def has_remote_actors(self) -> bool:
        """Whether workers have agents of their own, in other processes or in this one."""
        name = self.placement.name
        apart = name in ("single_learner_coarse", "parameter_server")
        return apart or (self.engine != "local" and name != "single_learner_fine")

    @property
    def has_environments_apart(self) -> bool:
        """Whether each environment has a process of its own, beside its worker's."""
        return self.vectorization == "async" or self.placement.name == "environments_apart"

    @property
    def schedule_length(self) -> int:
        """Length, in environment steps, of schedules without a length of their own."""
        return self.schedule_steps or self.steps

    @property
    def optimizer_steps(self) -> int | None:
        """Optimizer steps of the training: the length of learning-rate schedules without one; None: not known."""
        return None

    def updates_of_batches(self, steps: int) -> int:
        """Updates of the training, with so many new environment steps in each; the last one may be shorter."""
        return max(1, -(-self.schedule_length // steps))


class RolloutTrainConfig(TrainConfig):
    """Settings of trainings in rounds: a rollout of every environment, then one update on all of them."""

    @property
    def batch_steps(self) -> int:
        """Environment steps of an update: a rollout of every environment."""
        steps: int = self.agent.rollout_steps * self.num_envs  # type: ignore[attr-defined]
        return steps

    @property
    def optimizer_steps(self) -> int:
        """As many as there are updates."""
        return self.updates_of_batches(self.batch_steps)


ConfigT = TypeVar("ConfigT", bound=Config)


def resolve_config(
    model: type[ConfigT],
    *,
    presets: Mapping[str, Any] | None = None,
    file: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
) -> ConfigT:
    """Merges the sources of settings and validates the result.

    Args:
        model: The config class, which has the defaults.
        presets: Nested settings that were tuned for an environment.
        file: Nested settings from a file (`read_settings_file`).
        sets: Dotted settings, which win (`parse_assignments`).

    Returns:
        The configuration.

    Raises:
        ConfigError: Names the unknown, missing or wrong setting and the nearest right one.

    >>> resolve_config(TrainConfig, file={"env": "CartPole-v1", "seed": 3}, sets={"seed": 4}).seed
    4
    """
    settings: Settings = {}
    for source in (presets or {}, file or {}):
        settings = merge_settings(settings, spell_out(source))
    for key, value in (sets or {}).items():
        settings = merge_settings(settings, spell_out(nest(key, value)))
    config = model.from_data(settings)
    import_modules(getattr(config, "imports", ()))
    return config


def check_backend(name: str) -> None:
    """Checks that a backend exists and is installed, without importing its framework.

    Raises:
        BackendError: Names the nearest backend, or the extra that installs it.
    """
    if is_installed(name):
        return
    instead, offer = best_backend(), offer_of(name)
    if offer is None or instead == "numpy":
        get_backend(name)  # raises the error that says so
    assert offer is not None
    raise BackendError(
        f"backend {name!r} is not installed",
        where="backend",
        received=repr(name),
        fix=f"--backend {instead}, which is installed; or install it: {offer.installation}",
    )


def check_keys(
    config_class: type[TrainConfig], settings: Mapping[str, Any], spelled: Callable[[str], str] = repr
) -> None:
    """Suggests the dotted key for the bare name of a nested setting; validation finds other unknown keys.

    Args:
        config_class: The class with the settings.
        settings: The given settings.
        spelled: Spells a dotted key as in the source of the settings.
    """
    known = [setting.key for setting in describe_settings(config_class)]
    for key, value in settings.items():
        if key.partition(".")[0] in config_class.model_fields:
            continue
        meant = [dotted for dotted in known if dotted.endswith(f".{key}")]
        if meant:
            raise ConfigError(
                f"unknown setting {key!r}",
                where=config_class.__name__,
                received=repr(value),
                fix="did you mean " + " or ".join(map(spelled, meant)) + "?",
            )
