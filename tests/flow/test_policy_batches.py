"""Items of several policies: what they count, that branches have copies, and that they are kept in checkpoints."""

from typing import Any

import numpy as np
import pytest

from rlweave.errors import PlanError, SpaceError
from rlweave.flow import Episode, ParallelRollouts, PolicyBatches, ReportMetrics, SampleBatch
from rlweave.flow.codec import decode, encode
from rlweave.flow.reports import EpisodeWindow


def item(number=0.0, first=3, second=2):
    return PolicyBatches(
        {"x": SampleBatch({"r": np.full(first, number)}), "y": SampleBatch({"r": np.full(second, number)})},
        joint_steps=4,
    )


class Worker:
    shares_weights = True

    def __init__(self, number):
        self.number, self.made = number, 0

    def sample(self) -> PolicyBatches:
        self.made += 1
        if self.made > 3:
            raise StopIteration
        return item(10.0 * self.number + self.made)

    def set_weights(self, weights, version):
        pass

    def episode_stats(self):
        return [Episode(1.0 + self.number, 2, "x"), Episode(5.0, 3, "y")] if self.made == 1 else []


def test_steps_are_those_of_single_agents():
    both = PolicyBatches.concat([item(1.0), item(2.0)])
    assert (item().num_steps, item().joint_steps, len(item())) == (5, 4, 2)
    assert (both.num_steps, both.joint_steps) == (10, 8)
    np.testing.assert_array_equal(both["x"]["r"], [1, 1, 1, 2, 2, 2])
    with pytest.raises(SpaceError, match="different policies"):
        PolicyBatches.concat([item(), PolicyBatches({"x": SampleBatch({})}, 1)])


def test_a_copy_has_arrays_of_its_own():
    original = item()
    copy = original.copy()
    copy["x"]["r"][:] = 9.0
    assert original["x"]["r"].max() == 0.0
    assert copy.joint_steps == 4


def test_it_survives_a_checkpoint():
    kept = decode(encode(item(3.0), "queue"))
    assert isinstance(kept, PolicyBatches)
    assert (kept.joint_steps, sorted(kept)) == (4, ["x", "y"])
    np.testing.assert_array_equal(kept["y"]["r"], [3.0, 3.0])


def test_a_plan_knows_what_is_selected_and_refuses_what_does_not_fit():
    def takes_batch(batch: SampleBatch) -> SampleBatch:
        return batch

    def takes_number(number: int) -> int:
        return number

    stream = ParallelRollouts([Worker(0)]).gather_sync().select("x")
    assert stream.item_type is SampleBatch
    assert stream.for_each(takes_batch).item_type is SampleBatch
    with pytest.raises(PlanError, match=r"'select'.*'takes_number'"):
        ParallelRollouts([Worker(0)]).gather_sync().select("x").for_each(takes_number)


def test_policies_get_their_parts_of_the_same_rollouts_and_see_no_changes_of_others():
    """The slides split a stream at its sources; here a split gathers, and copies."""
    seen: dict[str, list[Any]] = {"x": [], "y": []}

    def spoil(batch: SampleBatch) -> SampleBatch:
        seen["x"].append(float(batch["r"][0]))
        batch["r"][:] = -1.0
        return batch

    def look(items: PolicyBatches) -> PolicyBatches:
        seen["y"].append((float(items["x"]["r"][0]), float(items["y"]["r"][0])))
        return items

    workers = [Worker(0), Worker(1)]
    first, second = ParallelRollouts(workers).split(2)  # parallel: gathers by itself
    from rlweave.flow import Union

    plan = ReportMetrics(Union(first.select("x").for_each(spoil), second.for_each(look)), workers)
    assert "gather_sync" in plan.explain()
    reports = list(plan.run())
    order = [1.0, 11.0, 2.0, 12.0, 3.0, 13.0]
    assert seen == {"x": order, "y": [(number, number) for number in order]}
    assert reports[-1].env_steps_sampled == 6 * 5
    assert reports[-1].policy_returns == {"x": 1.5, "y": 5.0}
    assert reports[-1].flat()["episode_return/x"] == 1.5


def test_returns_by_policy_are_those_of_the_last_episodes_and_are_kept():
    window = EpisodeWindow(size=2)
    window.add([Episode(1.0, 1, "x"), Episode(2.0, 1, "x"), Episode(4.0, 1, "x"), Episode(8.0, 1, "y")])
    again = EpisodeWindow(size=2)
    again.load_state_dict(window.state_dict())
    for one in (window, again):
        assert one.returns_by_policy() == {"x": 3.0, "y": 8.0}
        assert one.mean_return == 6.0
    again.add([Episode(0.0, 1, "x")])
    assert again.returns_by_policy() == {"x": 2.0, "y": 8.0}
    # what a single policy keeps has no policy in it
    alone = EpisodeWindow()
    alone.add([Episode(1.0, 2)])
    assert alone.state_dict() == {"finished": 1, "last": [[1.0, 2]]}
    assert Episode.from_data([1.0, 2]) == Episode(1.0, 2)
