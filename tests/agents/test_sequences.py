"""Sequences from steps of environments, against slices of everything that happened."""

import numpy as np
import pytest

from rlweave.agents.sequences import SequenceAccumulator, sequence_space
from rlweave.errors import ConfigError
from rlweave.spaces import Dict, FloatBox, IntBox, Tuple
from tests.agents.rollouts import NESTED_OBSERVATIONS


def play(accumulator, steps, envs, invalid=()):
    """Steps of numbered rows; those in `invalid` are (step, env) that are no transitions. Sequences by environment."""
    rng = np.random.default_rng(0)
    streams = [[] for _ in range(envs)]
    sequences = [[] for _ in range(envs)]
    for t in range(steps):
        valid = np.array([(t, b) not in invalid for b in range(envs)])
        number = np.array([1000 * b + len(streams[b]) + 1 for b in range(envs)], np.float32)
        ended, cut, start = (rng.random((3, envs)) < 0.2)[:3]
        for b in np.flatnonzero(valid):
            streams[b].append((number[b], ended[b], cut[b], start[b]))
        found = accumulator.add(
            {"x": number[:, None], "pair": (number, -number)},
            number.astype(np.int32),
            number / 2,
            ended,
            cut,
            {"x": number[:, None] + 0.5, "pair": (number, -number)},
            None if valid.all() else valid,
            recurrent_state=({"hidden": number[:, None] * 10},),
            episode_start=start,
        )
        for i in range(len(found["rewards"])):
            last = int(found["actions"][i, -1])
            sequences[last // 1000].append({key: value[i] for key, value in flat(found).items()})
    return streams, sequences


def flat(found):
    return {
        **{name: found[name] for name in ("actions", "rewards", "terminated", "truncated", "episode_start", "mask")},
        "x": found["observations"]["x"],
        "second": found["observations"]["pair"][1],
        "next": found["next_observations"]["x"],
        "initial": found["initial_state"][0]["hidden"],
    }


@pytest.mark.parametrize(("burn_in", "unroll", "overlap"), [(0, 3, 0), (2, 3, 0), (2, 4, 1), (5, 2, 1), (1, 1, 0)])
@pytest.mark.parametrize("invalid", [(), ((2, 0), (3, 0), (7, 1))])
def test_sequences_are_slices_of_each_stream(burn_in, unroll, overlap, invalid):
    streams, sequences = play(SequenceAccumulator(burn_in, unroll, overlap, 2), 20, 2, invalid)
    period = unroll - overlap
    trained = [np.zeros(len(stream), int) for stream in streams]
    for b, stream in enumerate(streams):
        assert len(sequences[b]) == (len(stream) - overlap) // period
        for k, found in enumerate(sequences[b]):
            first = k * period - burn_in
            rows = range(first, first + burn_in + unroll)
            np.testing.assert_array_equal(found["mask"], [t >= 0 for t in rows])
            for position, t in enumerate(rows):
                number, ended, cut, start = stream[t] if t >= 0 else (0.0, False, False, False)
                assert found["x"][position, 0] == number
                assert found["second"][position] == -number
                assert found["actions"][position] == int(number)
                assert found["rewards"][position] == number / 2
                assert found["next"][position, 0] == (number + 0.5 if t >= 0 else 0.0)
                assert (found["terminated"][position], found["truncated"][position]) == (ended, cut)
                assert found["episode_start"][position] == start
            assert found["initial"][0] == (10 * stream[first][0] if first >= 0 else 0.0)
            trained[b][first + burn_in : first + burn_in + unroll] += 1
    if overlap == 0:  # every step in exactly one sequence, but for those of the last one
        for counts in trained:
            whole = len(counts) // unroll * unroll
            np.testing.assert_array_equal(counts, np.arange(len(counts)) < whole)


def test_results_are_copies_and_a_reset_forgets():
    accumulator = SequenceAccumulator(1, 2, 1, 1)
    _, ((first, *_),) = play(accumulator, 4, 1)
    kept = {name: np.array(value) for name, value in first.items()}
    play(accumulator, 5, 1)
    for name, value in kept.items():
        np.testing.assert_array_equal(first[name], value)
    accumulator.reset()
    _, ((again, *_),) = play(accumulator, 4, 1)
    for name, value in kept.items():
        np.testing.assert_array_equal(again[name], value)


def test_the_space_has_time_within():
    state = Tuple(Dict(hidden=FloatBox(shape=(3,))))
    space = sequence_space(NESTED_OBSERVATIONS, IntBox(high=[2, 3]), state, 4)
    record = space.with_batch_rank().sample(2, rng=0)
    assert record["observations"]["image"].shape == (2, 4, 8, 8, 1)
    assert record["observations"]["image"].dtype == np.uint8
    assert record["actions"].shape == (2, 4, 2)
    assert record["actions"][..., 1].max() <= 2
    assert record["initial_state"][0]["hidden"].shape == (2, 3)
    assert record["mask"].dtype == bool


@pytest.mark.parametrize("numbers", [(-1, 1, 0, 1), (0, 0, 0, 1), (0, 2, 2, 1), (0, 2, -1, 1), (0, 2, 0, 0)])
def test_numbers_that_do_not_fit(numbers):
    with pytest.raises(ConfigError, match="sequences need burn_in >= 0"):
        SequenceAccumulator(*numbers)
