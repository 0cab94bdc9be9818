"""The algorithms that can be trained by name, and what the command line asks of each.

An algorithm is an `AlgorithmSpec`: a config class and a function that makes a trainer. rlweave's own are listed below
by the module that defines them, so that listing them imports none; a third party registers through the entry point
group `rlweave.algorithms`, or with `register_algorithm`.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from rlweave.algorithms.callbacks import Callbacks
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.envs import Evaluation, resolve
from rlweave.errors import ConfigError, nearest
from rlweave.plugins import load_plugin, plugin_error

#: A line of metrics: has `env_steps_sampled`, and `episode_return` once an episode has ended. Names never change.
Report = Mapping[str, float | int]


class Trainer(Protocol):
    """Something that trains; all that the command line needs of it.

    Attributes:
        callbacks: To be told of evaluations and checkpoints; of reports and the end the run tells them.
    """

    callbacks: Callbacks

    @property
    def env_steps(self) -> int:
        """Environment steps done so far, over all environments; a checkpoint keeps it."""

    def train(self) -> Iterator[Report]:
        """Trains from where it stands to `config.steps`.

        Yields:
            A report about every `config.report_every` steps, and one at the end. Whenever it yields, the trainer is in
            a state that can be saved; who stops iterating stops the training there.
        """

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Plays episodes greedily in environments of their own, which disturbs nothing of the training."""

    def save(self) -> Path:
        """Writes a checkpoint of everything into the run directory (a trainer also does so on its own)."""

    def restore(self, path: Path) -> None:
        """Takes over everything from a checkpoint."""

    def load_model(self, path: Path) -> None:
        """Takes over what acts from a checkpoint, such as `best`, which has nothing else: enough to evaluate."""

    def draw(self, method: str | None = None) -> str:
        """A picture of the component graph, or of one API method of it, as the text of an SVG file."""

    def code(self, method: str) -> str:
        """The code that runs for one API method of the agent's root component."""

    def explain(self) -> str:
        """How the component graph was built, phase by phase."""

    def draw_plan(self) -> str:
        """A picture of the dataflow plan, as the text of an SVG file."""

    def close(self) -> None:
        """Closes environments and ends processes."""


@dataclasses.dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm that can be trained by name.

    Attributes:
        name: As on the command line.
        summary: One line for `rlweave list`.
        config_class: Its settings, usually with a section `agent`.
        make_trainer: Makes a trainer from a config. Without a run directory nothing is written.
        presets: Environment id, or a pattern of ids such as `ALE/*`, to nested settings that were tuned for it; they
            stand between defaults and config file.
        needs_gradients: Whether only a backend with gradients can train it; it may act and be looked at on others.
        make_parts: Makes `rlweave.algorithms.trainer.Parts` from a config, and starts nothing: what `PlanTrainer` gets,
            and what `rlweave plan` looks at.
        evaluate: Plays episodes with what acts: from a config, a player (see `Agent.greedy_player`; of several policies
            a dict of them), a number of episodes and a seed. None: only a trainer can, see `Trainer.evaluate`.
        find_env: Finds the environment of a name; raises `EnvError` if there is none.
    """

    name: str
    summary: str
    config_class: type[TrainConfig]
    make_trainer: Callable[[Any, RunDirectory | None], Trainer]
    presets: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    needs_gradients: bool = True
    make_parts: Callable[[Any], Any] | None = None
    evaluate: Callable[[Any, Any, int, int], Evaluation] | None = None
    find_env: Callable[[str], object] = resolve

    def preset_of(self, env: Any) -> Mapping[str, Any] | None:
        """The settings tuned for an environment: those of its id, else of the first pattern that fits; None: none."""
        if not isinstance(env, str):
            return None
        fitting = (preset for pattern, preset in self.presets.items() if fnmatch.fnmatchcase(env, pattern))
        return self.presets.get(env) or next(fitting, None)


ENTRY_POINT_GROUP = "rlweave.algorithms"

# Name -> "module:attribute" of its AlgorithmSpec.
_BUILT_IN = {
    "a2c": "rlweave.algorithms.a2c:A2C",
    "a3c": "rlweave.algorithms.a3c:A3C",
    "ape-x": "rlweave.algorithms.ape_x:APE_X",
    "appo": "rlweave.algorithms.appo:APPO",
    "dqn": "rlweave.algorithms.dqn:DQN",
    "es": "rlweave.algorithms.es:ES",
    "impala": "rlweave.algorithms.impala:IMPALA",
    "maml": "rlweave.algorithms.maml:MAML",
    "multi-agent": "rlweave.algorithms.multi_agent:MULTI_AGENT",
    "pbt": "rlweave.algorithms.pbt:PBT",
    "ppo": "rlweave.algorithms.ppo:PPO",
}
_registered: dict[str, AlgorithmSpec] = {}


def register_algorithm(spec: AlgorithmSpec) -> AlgorithmSpec:
    """Makes an algorithm known by its name.

    Raises:
        ConfigError: When the name is taken by another.
    """
    if spec.name in _BUILT_IN or _registered.get(spec.name, spec) != spec:
        raise ConfigError("there is an algorithm of this name already", received=repr(spec.name))
    _registered[spec.name] = spec
    return spec


def algorithm_names() -> list[str]:
    """The names of all algorithms, sorted; imports none of them."""
    entry_points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return sorted({*_BUILT_IN, *_registered, *(point.name for point in entry_points)})


def get_algorithm(name: str) -> AlgorithmSpec:
    """The algorithm of a name.

    Raises:
        ConfigError: When there is none (names the nearest), when several packages offer one of this name, or when the
            package that offers it is broken.
    """
    points = [point for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP) if point.name == name]
    ours = name in _BUILT_IN or name in _registered
    if points and (ours or len({point.value for point in points}) > 1):
        others = ", ".join(point.value for point in points[:1] if not ours)
        raise plugin_error(points[-1], f"there is an algorithm {name!r} already, {others or 'in rlweave itself'}")
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name].split(":")
        spec: AlgorithmSpec = getattr(importlib.import_module(module), attribute)
        return spec
    for point in points:
        loaded = load_plugin(point)
        if not isinstance(loaded, AlgorithmSpec):
            raise plugin_error(point, f"{point.value} is no AlgorithmSpec, but of type {type(loaded).__name__}")
        return loaded
    raise ConfigError("unknown algorithm", received=repr(name), fix=nearest(name, algorithm_names()))
