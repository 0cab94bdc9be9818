"""Text: the same numbers in every process, averages of word vectors, and policies over spaces with text."""

import subprocess
import sys
import zlib

import numpy as np
import pytest

from rlweave.components import HashText, ObservationEncoder, Policy, TokenEmbedding, hash_text
from rlweave.errors import BuildError, SpaceError, SpecError
from rlweave.graph import Component, api
from rlweave.spaces import Dict, FloatBox, IntBox, TextBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS

TOKENS = IntBox(10, shape=(4,), layout="tokens")
TEXTS = np.array(["Go left, go", "", "STOP"], object)


def number(word, buckets=100):
    return 1 + zlib.crc32(word.encode()) % (buckets - 1)


def test_words_become_numbers():
    expected = [[number(w) for w in ("go", "left", ",", "go")], [0] * 4, [number("stop"), 0, 0, 0]]
    np.testing.assert_array_equal(hash_text(TEXTS, 4, 100), expected)
    np.testing.assert_array_equal(hash_text("go left, go", 2, 100), expected[0][:2])  # what is too long is cut
    assert hash_text("naïve 日本 \n", 4, 50)[2] == 0
    assert hash_text(np.array([["a"], ["b"]], object), 3, 50).shape == (2, 1, 3)
    every = hash_text([f"w{i}" for i in range(500)], 1, 7)
    assert set(every.reshape(-1).tolist()) == set(range(1, 7))  # never 0, which is no word


def test_what_is_no_text_is_refused():
    for wrong in (None, 3, b"go", ["go", 1.5]):
        with pytest.raises(SpaceError, match="only text can be hashed"):
            hash_text(wrong, 3, 50)
    with pytest.raises(SpaceError, match="buckets must be a whole number"):
        hash_text("go", 3, 1)
    assert hash_text("\ud800 x", 3, 50)[0] > 0  # half of a pair, as broken text has it


def test_numbers_are_the_same_in_every_process():
    # Python's own hash of str differs
    code = "from rlweave.components import hash_text; print(hash_text('go left', 3, 4096).tolist())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == str(hash_text("go left", 3, 4096).tolist())


@pytest.mark.parametrize("sizes", [(0, 10), (3, 1), (True, 10), (2.0, 10)])
def test_sizes_are_checked(sizes):
    with pytest.raises(SpaceError, match="must be a whole number"):
        HashText(*sizes)


class Instructed(Component):
    """Text on the host, numbers in the graph."""

    def __init__(self):
        super().__init__("instructed")
        self.hashing, self.embedding = HashText(4, 10), TokenEmbedding(3)

    @api
    def features(self, texts):
        return self.embedding.call(self.hashing.call(texts))

    @api
    def of_observation(self, observation):
        return self.features(observation["order"]), observation["speed"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_text_becomes_the_mean_vector_of_its_words(backend):
    spaces = {
        "texts": TextBox(add_batch_rank=True),
        "observation": Dict(order=TextBox(), speed=FloatBox()).with_batch_rank(),
    }
    test = ComponentTest(Instructed(), spaces, backend)
    table = test.executor.get_weights()["instructed/token-embedding/table"]
    numbers = hash_text(TEXTS, 4, 10)
    expected = np.stack([table[row[row > 0]].mean(0) if row.any() else np.zeros(3) for row in numbers])
    test.test("features", TEXTS, expected=expected, rtol=1e-5, atol=1e-6)
    speed = np.array([1, 2, 3], np.float32)
    test.test("of_observation", {"order": TEXTS, "speed": speed}, expected=(expected, speed), rtol=1e-5, atol=1e-6)
    with pytest.raises(Exception, match="texts"):
        test.test("features", np.zeros(3, np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_policy_over_a_space_with_text(backend):
    space = Dict(order=TOKENS, position=FloatBox(shape=(2,)))
    policy = Policy([{"type": "dense", "units": 8}], IntBox(3), observation_space=space)
    spaces = {"observations": space.with_batch_rank(), "actions": IntBox(3, add_batch_rank=True)}
    order = np.array([[1, 2, 0, 0], [2, 1, 0, 0], [3, 0, 0, 0]], np.int32)
    observations = {"order": order, "position": np.zeros((3, 2), np.float32)}
    test = ComponentTest(policy, spaces, backend)
    assert test.variables()["network/text-order/table"].shape == (10, 32)  # a row for each number of a word
    logits = test.test("parameters", observations)
    np.testing.assert_allclose(logits[0], logits[1], rtol=1e-5, atol=1e-6)  # a bag of words
    assert np.abs(logits[0] - logits[2]).max() > 1e-3


def test_a_table_has_rows_for_the_largest_number_of_any_place():
    space = Dict(order=IntBox(high=[3, 10], shape=(2,), layout="tokens"))
    encoder = ObservationEncoder(observation_space=space)
    test = ComponentTest(encoder, {"inputs": space.with_batch_rank()})
    assert {value.shape for value in test.variables().values()} == {(10, 32)}
    features, _ = test.test("call", {"order": np.array([[2, 9], [0, 9]], np.int32)})
    (table,) = test.variables().values()
    np.testing.assert_allclose(features, [(table[2] + table[9]) / 2, table[9]], rtol=1e-5, atol=1e-6)


def test_spaces_that_have_no_words_are_refused():
    with pytest.raises(BuildError, match="only text can be hashed"):
        ComponentTest(HashText(), {"texts": FloatBox(add_batch_rank=True)})
    with pytest.raises(BuildError, match="numbers of words"):
        ComponentTest(TokenEmbedding(), {"inputs": FloatBox(shape=(3,), add_batch_rank=True)})
    with pytest.raises(BuildError, match="needs its space beforehand"):
        ComponentTest(ObservationEncoder(), {"inputs": TOKENS.with_batch_rank()})
    with pytest.raises(BuildError, match="hash its words"):
        ComponentTest(ObservationEncoder(), {"inputs": TextBox(add_batch_rank=True)})
    for units in (0, -1, 2.5, True):
        with pytest.raises(SpecError, match="whole number of units"):
            TokenEmbedding(units)
    assert TokenEmbedding(1).units == 1
    for number in (0, 2.5, True):
        with pytest.raises(SpecError, match="whole number of words"):
            TokenEmbedding(number=number)
    assert TokenEmbedding(number=1).number == 1
    with pytest.raises(SpecError, match="standard_normal"):
        TokenEmbedding(initializer="standart_normal")
