"""Who plays where in a generation: every member once, whatever the lengths of episodes."""

import numpy as np
import pytest

from rlweave.extras.es_agent import Generation


@pytest.mark.parametrize(("pairs", "num_envs"), [(1, 1), (1, 2), (3, 4), (5, 2), (8, 16)])
@pytest.mark.parametrize("seed", range(3))
def test_every_member_plays_once_and_gets_its_own_return(pairs, num_envs, seed):
    rng = np.random.default_rng(seed)
    offsets = rng.permutation(1000)[:pairs].astype(np.int32)
    worth = {(int(offset), sign): rng.normal() for offset in offsets for sign in (1.0, -1.0)}
    generation, played = Generation(offsets, num_envs), []
    while not generation.complete:
        for index in rng.permutation(num_envs)[: rng.integers(1, num_envs + 1)]:
            before = [(int(offset), float(sign)) for offset, sign in zip(*generation.playing(), strict=True)]
            counts = not np.isfinite(generation.returns.reshape(-1)[list(worth).index(before[index])])
            moved = generation.finish(int(index), worth[before[index]] if counts else np.nan)
            after = [(int(offset), float(sign)) for offset, sign in zip(*generation.playing(), strict=True)]
            assert [a for i, a in enumerate(after) if i != index] == [b for i, b in enumerate(before) if i != index]
            assert moved == (after[index] != before[index])
            if counts:
                played.append(before[index])
    assert sorted(played) == sorted(worth)
    expected = [[worth[int(offset), 1.0], worth[int(offset), -1.0]] for offset in offsets]
    np.testing.assert_allclose(generation.returns, np.array(expected, np.float32))
