"""JSON that every program reads."""

import json
import math
import warnings

import numpy as np
import pytest

from rlweave.cli.train import describe_evaluation, evaluation_data
from rlweave.envs.multi_agent import MultiAgentEnv
from rlweave.envs.multi_agent_evaluation import evaluate_together
from rlweave.errors import CheckpointError, RlweaveError
from rlweave.runs.checkpoint import load_checkpoint, save_checkpoint
from rlweave.runs.states import join_arrays, split_arrays
from rlweave.strict_json import to_json
from tests.envs.parallel_fakes import Scripted, apart


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_named(value):
    with pytest.raises(RlweaveError, match=r"(?s)losses/1/mean.*received: -?(nan|inf)"):
        to_json({"losses": [1.0, {"mean": value}]})


def test_a_policy_that_nobody_played_is_null():
    def factory(seed, worker):
        return MultiAgentEnv([lambda: Scripted("ab", [[{"a": 0}, {"a": (1, 2.0, "T")}]])], apart, seed=seed)

    play = dict.fromkeys("ab", lambda observations, start, acting: np.zeros(len(start), np.int32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluation = evaluate_together(play, factory, 2, seed=0)
        data = evaluation_data(evaluation)
        text = describe_evaluation(evaluation, "something")
    assert json.loads(to_json(data))["policies"]["b"] == {
        "mean_return": None,
        "deviation": None,
        "returns": [],
        "lengths": [],
    }
    assert data["policies"]["a"]["mean_return"] == 2.0
    assert "a 2.0, b not played" in text


def test_checkpoints_keep_numbers_that_are_not_finite_as_text(tmp_path):
    arrays = {}
    state = {"best": -math.inf, "losses": [math.nan, np.float32(math.inf)], "step": 1.5}
    path = save_checkpoint(tmp_path, 1, arrays, split_arrays(state, "", arrays))
    json.loads((path / "meta.json").read_text(), parse_constant=pytest.fail)
    loaded = join_arrays(load_checkpoint(path)[1], arrays)
    assert repr(loaded) == "{'best': -inf, 'losses': [nan, inf], 'step': 1.5}"
    with pytest.raises(CheckpointError, match=r"(?s)number like this.*meta\.mean"):
        save_checkpoint(tmp_path, 2, {}, {"mean": math.nan})


@pytest.mark.parametrize(
    "state",
    [
        {"array": {"node": 1}},
        {"array": "messages/array"},
        {"not finite": "no number"},
        {"literal": {"array": 1}},
        {"a/b": np.array([1]), "a": {"b": np.array([2]), "b'": np.array([3])}},
    ],
)
def test_data_that_looks_like_what_stands_for_arrays_comes_back_as_it_was(tmp_path, state):
    arrays = {}
    path = save_checkpoint(tmp_path, 1, arrays, split_arrays({"messages": state}, "", arrays))
    arrays, meta = load_checkpoint(path)
    assert repr(join_arrays(meta, arrays)) == repr({"messages": state})
