"""Memories of images: each picture is stored once, and what comes out is what went in."""

import numpy as np
import pytest

from rlweave.components.memories import NStepAccumulator, PrioritizedReplay, ReplayMemory
from rlweave.components.memories.pictures import PictureRing
from rlweave.spaces import Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest

SIDE = 16
STACK = IntBox(0, 256, shape=(4, SIDE, SIDE), dtype="uint8", layout="frames_first")
IMAGE = IntBox(0, 256, shape=(SIDE, SIDE, 3), dtype="uint8", layout="channels_last")
KINDS = (ReplayMemory, PrioritizedReplay)


def space_of(observation):
    return Dict(observations=observation, rewards=FloatBox(), next_observations=observation, add_batch_rank=True)


def executor_of(component, observation=STACK):
    spaces = {
        "records": space_of(observation),
        "indices": IntBox(component.capacity, add_batch_rank=True),
        "td_errors": FloatBox(add_batch_rank=True),
    }
    return ComponentTest(component, spaces, backend="numpy").executor


class Frames:
    """Environments that show numbered random frames, the last four of an episode, which end at random."""

    def __init__(self, num_envs, mean_length, seed, observation=STACK):
        self.rng, self.num_envs, self.mean_length = np.random.default_rng(seed), num_envs, mean_length
        self.observation = observation
        self.observations = [self.first() for _ in range(num_envs)]

    def frame(self):
        return self.rng.integers(0, 3, self.observation.shape[1:], dtype=np.uint8)

    def first(self):
        if self.observation is IMAGE:
            return self.rng.integers(0, 256, IMAGE.shape, dtype=np.uint8)
        return np.stack([*np.zeros((3, SIDE, SIDE), np.uint8), self.frame()])

    def after(self, state):
        return self.first() if self.observation is IMAGE else np.concatenate([state[1:], self.frame()[None]])

    def step(self):
        """(observations, rewards, terminated, truncated, next observations)."""
        before = np.stack(self.observations)
        after = np.stack([self.after(state) for state in self.observations])
        ended = self.rng.random(self.num_envs) < 1 / self.mean_length
        cut = ended & (self.rng.random(self.num_envs) < 0.5)
        self.observations = [self.first() if end else state for end, state in zip(ended, after, strict=True)]
        return before, self.rng.normal(size=self.num_envs).astype(np.float32), ended & ~cut, cut, after


def filled(memory, frames, steps, n_step=1):
    """Inserts what n-step windows make of steps; all records, in order."""
    windows, kept = NStepAccumulator(n_step, 0.9, frames.num_envs), []
    for _ in range(steps):
        observations, rewards, terminated, truncated, after = frames.step()
        records = windows.add(observations, np.zeros(len(rewards)), rewards, terminated, truncated, after)
        records = {name: records[name] for name in ("observations", "rewards", "next_observations")}
        if len(records["rewards"]):
            memory.insert(records)
            kept += [{name: value[i] for name, value in records.items()} for i in range(len(records["rewards"]))]
    return kept


def check_contents(memory, kept, capacity):
    """What is drawn are the records of the slots, those held are the last ones, and all of them are drawn."""
    size, seen = int(memory.size()), set()
    for _ in range(8):
        records, indices, _ = memory.sample(batch_size=size)
        for row, slot in enumerate(indices.tolist()):
            number = len(kept) - 1 - (len(kept) - 1 - slot) % capacity
            assert len(kept) - size <= number, "a record was drawn that is no longer held"
            for name, value in kept[number].items():
                np.testing.assert_array_equal(records[name][row], value)
            seen.add(number)
    assert len(seen) > 0.9 * size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("num_envs", "mean_length", "n_step", "steps"), [(1, 12, 1, 300), (3, 25, 3, 90), (8, 6, 5, 8), (2, 100, 2, 400)]
)
def test_what_comes_out_is_what_went_in(kind, num_envs, mean_length, n_step, steps):
    memory = executor_of(kind(100))
    kept = filled(memory, Frames(num_envs, mean_length, 0), steps, n_step)
    assert min(len(kept), 100) * (1.0 if mean_length > 20 else 0.9) <= memory.size() <= min(len(kept), 100)
    check_contents(memory, kept, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_short_episodes_give_way_early_and_never_come_out_wrong(kind):
    # each record brings many pictures of its own: there is no room for as many records as usual
    memory = executor_of(kind(300))
    kept = filled(memory, Frames(5, 1.2, 1), 70)
    kept += filled(memory, Frames(5, 1.2, 2), 70)
    assert 100 < memory.size() < 300
    check_contents(memory, kept, 300)
    if kind is PrioritizedReplay:
        _, indices, _ = memory.sample(batch_size=8)
        filled(memory, Frames(5, 1.2, 3), 60)  # what was drawn may be gone by now
        memory.update_priorities(indices, np.ones(8, np.float32))
        size = int(memory.size())
        tree = memory.state_dict()["memory/sum-tree"]
        assert np.count_nonzero(tree[len(tree) // 2 :]) == size


def test_pictures_with_one_print_are_told_apart(monkeypatch):
    # all pictures have the same print; frames of few values have equal pixels
    monkeypatch.setattr(PictureRing, "_prints", lambda self, pictures: [7] * len(pictures))
    memory = executor_of(ReplayMemory(40))
    kept = filled(memory, Frames(1, 30, 0), 20)
    check_contents(memory, kept, 40)


def test_whole_images_are_stored_once():
    memory = executor_of(ReplayMemory(100), IMAGE)
    kept = filled(memory, Frames(2, 40, 0, IMAGE), 130)
    assert 95 <= memory.size() <= 100
    check_contents(memory, kept, 100)


def test_equal_pictures_from_long_ago_are_stored_again():
    memory = executor_of(ReplayMemory(60))
    rng = np.random.default_rng(0)
    same = rng.integers(0, 256, STACK.shape, dtype=np.uint8)
    kept = []
    for i in range(400):
        stack = same if i % 90 == 0 else rng.integers(0, 256, STACK.shape, dtype=np.uint8)
        record = {"observations": stack, "rewards": np.float32(i), "next_observations": stack}
        memory.insert({name: value[None] for name, value in record.items()})
        kept.append(record)
    check_contents(memory, kept, 60)


def test_a_restored_memory_goes_on_as_the_one_that_was_saved():
    def states_after(restored):
        memory = executor_of(ReplayMemory(50))
        frames = Frames(2, 20, 3)
        filled(memory, frames, 60)
        if restored:
            other = executor_of(ReplayMemory(50))
            other.load_state_dict(memory.state_dict())
            memory = other
        filled(memory, frames, 20)
        return memory.state_dict()

    for (name, uncut), resumed in zip(states_after(False).items(), states_after(True).values(), strict=True):
        np.testing.assert_array_equal(resumed, uncut, err_msg=name)


@pytest.mark.parametrize(("observation", "bound"), [(STACK, 0.2), (IMAGE, 0.55)])
def test_bytes_per_record(observation, bound):
    wide = {STACK: (4, 84, 84), IMAGE: (84, 84, 3)}[observation]
    observation = IntBox(0, 256, shape=wide, dtype="uint8", layout=observation.layout)
    capacity = 20_000
    memory = executor_of(ReplayMemory(capacity), observation)
    cells = [cell.value for path, cell in memory.store.cells.items() if path.startswith("memory/")]
    assert sum(array.nbytes for array in cells) <= bound * capacity * 2 * np.prod(wide)
