"""Reports on the progress of a plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlweave.flow.codec import saved_as
from rlweave.flow.protocols import Episode


@dataclass(frozen=True)
class Report:
    """The progress of a plan so far, and since the last report.

    Attributes:
        seconds: Running time of the plan, including earlier parts of a resumed run.
        env_steps_sampled: Environment steps sampled so far.
        trained_samples: Samples trained on so far.
        gradient_steps: Optimizer steps so far.
        updates: Learner updates so far.
        replay_ratio: Trained samples per environment step so far.
        env_steps_per_second: Environment steps per second since the last report (0.0 if no time has passed).
        episodes: Episodes that finished since the last report: the newest 10,000, if there were more.
        episodes_finished: Number of episodes so far, all of them.
        episode_return: Mean return of the last episodes (`start` sets how many); None before the first one.
        episode_length: Mean length of the same; None before the first one.
        infos: Mean of each number of infos that is a metric, over the same.
        policy_returns: Mean return of as many last episodes of each policy, where there are several.
        metrics: Mean of every metric of the learners since the last report, as ``"operator/metric"``.
        gather_lag: Items by weight lag when they left their gather, so far, without those that it dropped.
        train_lag: Items by weight lag when a learner trained on them, in updates of that learner, so far.
        train_lags: The same by the operator that trained.
        drops: Items dropped so far, by operator: by a full queue, or for their age by a gather or a learner's operator.
        failures: Failures after which the plan went on, so far, by operator.
        replacements: Actors restarted so far, by operator.
        lost_items: Items lost with actors that failed, so far, by operator.
        lost_updates: Updates lost with a learner's actor so far, by operator.
        measures: Present state of operators, as ``"operator/number"``: fill of queues, observed replay ratio.
        operator_seconds: Seconds of work so far, by operator.
        operator_items: Items worked on so far, by operator.
    """

    seconds: float
    env_steps_sampled: int
    trained_samples: int
    gradient_steps: int
    updates: int
    replay_ratio: float
    env_steps_per_second: float
    episodes: tuple[Episode, ...]
    episodes_finished: int
    episode_return: float | None
    episode_length: float | None
    infos: Mapping[str, float]
    policy_returns: Mapping[str, float]
    metrics: Mapping[str, float]
    gather_lag: Mapping[int, int]
    train_lag: Mapping[int, int]
    train_lags: Mapping[str, Mapping[int, int]]
    drops: Mapping[str, int]
    failures: Mapping[str, int]
    replacements: Mapping[str, int]
    lost_items: Mapping[str, int]
    lost_updates: Mapping[str, int]
    measures: Mapping[str, float]
    operator_seconds: Mapping[str, float]
    operator_items: Mapping[str, int]

    def flat(self) -> dict[str, float]:
        """All single numbers by name, for a table or TensorBoard; unknown ones are left out."""
        values: dict[str, float] = {
            "seconds": self.seconds,
            "env_steps_sampled": self.env_steps_sampled,
            "trained_samples": self.trained_samples,
            "gradient_steps": self.gradient_steps,
            "updates": self.updates,
            "replay_ratio": self.replay_ratio,
            "env_steps_per_second": self.env_steps_per_second,
            "episodes_finished": self.episodes_finished,
        }
        if self.episode_return is not None and self.episode_length is not None:
            values["episode_return"] = self.episode_return
            values["episode_length"] = self.episode_length
        values.update({f"info/{name}": mean for name, mean in self.infos.items()})
        values.update({f"episode_return/{policy}": mean for policy, mean in self.policy_returns.items()})
        lags = {"gather_lag": self.gather_lag, "train_lag": self.train_lag}
        if len(self.train_lags) > 1:
            lags |= {f"train_lag/{operator}": lag for operator, lag in self.train_lags.items()}
        for name, histogram in lags.items():
            if histogram:
                total = sum(histogram.values())
                values[f"{name}/mean"] = sum(lag * count for lag, count in histogram.items()) / total
                values[f"{name}/max"] = max(histogram)
        values.update(self.metrics)
        values.update(self.measures)
        for what in ("drops", "failures", "replacements", "lost_items", "lost_updates"):
            values.update({f"{what}/{name}": count for name, count in getattr(self, what).items()})
        values.update({f"seconds/{name}": seconds for name, seconds in self.operator_seconds.items() if seconds})
        return values


@saved_as("unreported_episodes")
class UnreportedEpisodes:
    """Episodes since the last report: only the newest are kept, which bounds the memory between two reports.

    Attributes:
        newest: In order.
        earlier: Number of episodes before those.
    """

    limit = 10_000

    def __init__(self) -> None:
        self.newest: deque[Episode] = deque(maxlen=self.limit)
        self._count = 0

    @property
    def earlier(self) -> int:
        """Number of episodes that are not kept."""
        return self._count - len(self.newest)

    def extend(self, episodes: Sequence[Episode], earlier: int = 0) -> None:
        """Adds episodes in order, and counts earlier ones that are not kept."""
        self._count += len(episodes) + earlier
        self.newest.extend(episodes)

    def state_dict(self) -> dict[str, Any]:
        """The episodes."""
        return {"newest": [episode.to_data() for episode in self.newest], "earlier": self.earlier}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> UnreportedEpisodes:
        """What ``state_dict`` described."""
        made = cls()
        made.extend([Episode.from_data(data) for data in state["newest"]], state["earlier"])
        return made


class EpisodeWindow:
    """The last episodes, and the number of all."""

    def __init__(self, size: int = 20) -> None:
        self.finished, self._size = 0, size
        self._last: deque[Episode] = deque(maxlen=size)
        self._by_policy: dict[str, deque[Episode]] = {}

    def add(self, episodes: Sequence[Episode], earlier: int = 0) -> None:
        """Adds episodes in order, and counts earlier ones that are not kept."""
        self.finished += len(episodes) + earlier
        self._last.extend(episodes)
        for episode in episodes:
            if episode.policy:
                self._by_policy.setdefault(episode.policy, deque(maxlen=self._size)).append(episode)

    def returns_by_policy(self) -> dict[str, float]:
        """Mean return of each policy that has finished an episode."""
        return {
            policy: sum(episode.episode_return for episode in last) / len(last)
            for policy, last in sorted(self._by_policy.items())
        }

    @property
    def mean_return(self) -> float | None:
        """Mean return; None if there is no episode."""
        return sum(episode.episode_return for episode in self._last) / len(self._last) if self._last else None

    @property
    def mean_length(self) -> float | None:
        """Mean length; None if there is no episode."""
        return sum(episode.length for episode in self._last) / len(self._last) if self._last else None

    def mean_infos(self) -> dict[str, float]:
        """Mean of each number of infos that some of these episodes have."""
        values: dict[str, list[float]] = {}
        for episode in self._last:
            for name, value in episode.info:
                values.setdefault(name, []).append(value)
        return {name: sum(own) / len(own) for name, own in sorted(values.items())}

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state."""
        by_policy = {policy: [episode.to_data() for episode in last] for policy, last in self._by_policy.items()}
        state = {"finished": self.finished, "last": [episode.to_data() for episode in self._last]}
        return {**state, "by_policy": by_policy} if by_policy else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self.finished = int(state["finished"])
        self._last.clear()
        self._last.extend(map(Episode.from_data, state["last"]))
        self._by_policy = {
            str(policy): deque(map(Episode.from_data, last), maxlen=self._size)
            for policy, last in state.get("by_policy", {}).items()
        }
