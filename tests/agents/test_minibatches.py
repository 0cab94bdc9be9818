"""What minibatches are cut from."""

from rlweave.agents.minibatches import RowMinibatches, SequenceMinibatches
from rlweave.spaces import Dict, FloatBox

ROW = Dict(rewards=FloatBox())


def test_sequences_are_of_any_number_of_steps_and_trajectories():
    space = SequenceMinibatches.space(ROW, Dict(cell=FloatBox(shape=(2,)))).flatten()
    assert {name for name, leaf in space.items() if leaf.has_time_rank} == {"rewards", "episode_start"}
    assert all(leaf.has_batch_rank for leaf in space.values())


def test_rows_are_of_any_number():
    (leaf,) = RowMinibatches.space(ROW, Dict()).flatten().values()
    assert leaf.has_batch_rank
    assert not leaf.has_time_rank
