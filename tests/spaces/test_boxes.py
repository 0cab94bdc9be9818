"""The numeric leaves: bounds, sampling, membership."""

import numpy as np
import pytest
from hypothesis import given

from rlweave.errors import SpaceError
from rlweave.spaces import BATCH, BoolBox, FloatBox, IntBox
from tests.spaces.strategies import float_boxes, int_boxes, quick


class TestFloatBox:
    def test_bounds_broadcast_per_dimension(self):
        box = FloatBox([[0], [-np.inf]], [1, 2, np.inf])
        assert box.shape == (2, 3)
        np.testing.assert_array_equal(box.low, [[0, 0, 0], [-np.inf] * 3])
        np.testing.assert_array_equal(box.high, [[1, 2, np.inf]] * 2)
        np.testing.assert_array_equal(box.bounded, [[True, True, False], [False] * 3])
        assert box.low.dtype == box.high.dtype == np.float32

    def test_unbounded(self):
        box = FloatBox(shape=(2,))
        np.testing.assert_array_equal(box.low, [-np.inf, -np.inf])
        np.testing.assert_array_equal(box.high, [np.inf, np.inf])
        assert not box.bounded.any()

    def test_bounds_beyond_float32_are_none(self):
        assert FloatBox(-1e300, 1e300) == FloatBox()
        assert FloatBox(-1e300, 1e300, dtype="float64") != FloatBox(dtype="float64")

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: FloatBox(1, 0), "low above its high"),
            (lambda: FloatBox([0, 3], [1, 2]), "low above its high"),
            (lambda: FloatBox(np.nan), "low of a FloatBox is not a number"),
            (lambda: FloatBox(0, [1, np.nan]), "high of a FloatBox is not a number"),
            (lambda: FloatBox("a"), "not a number"),
            (lambda: FloatBox(low=np.inf), "no finite number"),
            (lambda: FloatBox(high=-np.inf), "no finite number"),
            (lambda: FloatBox([0, 0], shape=(3,)), "do not fit its shape"),
            (lambda: FloatBox([0, 0, 0], [1, 1]), "shape=left out"),
            (lambda: FloatBox([0, 0], shape=(BATCH,)), "symbolic axes allow a number only"),
        ],
    )
    def test_errors_teach(self, make, message):
        with pytest.raises(SpaceError, match=message):
            make()

    def test_samples_follow_their_bounds(self):
        box = FloatBox([-2, 5, -np.inf, -np.inf, 3], [2, np.inf, -5, np.inf, 3], add_batch_rank=True)
        samples = box.sample(20_000, rng=0)
        assert samples.dtype == np.float32
        assert box.contains(samples)
        mean, std = samples.mean(axis=0), samples.std(axis=0)
        # uniform on [-2, 2]; 5 + Exp(1); -5 - Exp(1); Normal(0, 1); the one value there is
        np.testing.assert_allclose(mean, [0, 6, -6, 0, 3], atol=0.05)
        np.testing.assert_allclose(std, [4 / np.sqrt(12), 1, 1, 1, 0], atol=0.05)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_widest_bounds_do_not_overflow(self, dtype):
        largest = float(np.finfo(dtype).max)
        for box in [FloatBox(-largest, largest, dtype=dtype), FloatBox(low=largest, dtype=dtype)]:
            samples = box.sample(1000, rng=0)
            assert np.isfinite(samples).all()
            assert box.with_batch_rank().contains(samples)

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (np.float32([0, 2]), "holds 2.0 at index (1,), outside [0, 1]"),
            (np.float32([np.nan, 0]), "holds nan at index (0,)"),
            (np.float64([0, 0]), "needs dtype float32, got float64"),
            (np.float32(0), "needs axes (2,), got shape ()"),
            (np.float32([0, 0, 0]), "needs axes (2,), got shape (3,)"),
            ([0.0, 0.0], "needs a NumPy array, got list"),
            (np.float32([0, np.inf]), "holds inf at index (1,), outside [0, 1]"),
        ],
    )
    def test_why_not(self, value, reason):
        box = FloatBox(0, 1, shape=(2,))
        assert box.why_not(value) == reason
        assert not box.contains(value)

    def test_nan_is_never_inside(self):
        assert FloatBox().why_not(np.float32(np.nan)) == "holds nan"
        assert FloatBox().contains(np.float32(np.inf))

    def test_reason_quotes_the_bounds_of_that_dimension(self):
        box = FloatBox([0, -5], [1, 5], add_batch_rank=True)
        assert box.why_not(np.float32([[0, 4], [0, 6]])) == "holds 6.0 at index (1, 1), outside [-5, 5]"

    @quick
    @given(float_boxes())
    def test_samples_lie_inside(self, box):
        assert box.why_not(box.sample(rng=1)) is None


class TestIntBox:
    def test_one_number_is_the_number_of_categories(self):
        box = IntBox(5)
        assert (box.low, box.high, box.last, box.num_categories, box.shape) == (0, 5, 4, 5, ())
        assert set(box.sample(200, rng=0).tolist()) == {0, 1, 2, 3, 4}
        assert box.contains(np.int32(4))
        assert box.why_not(np.int32(5)) == "holds 5, outside [0, 5)"
        assert box.why_not(np.int32(-1)) == "holds -1, outside [0, 5)"

    def test_high_is_exclusive(self):
        box = IntBox(2, 5)
        assert set(box.sample(200, rng=0).tolist()) == {2, 3, 4}
        assert box.num_categories is None

    def test_a_high_per_dimension_is_multi_discrete(self):
        box = IntBox(high=[3, 4])
        assert box == IntBox([3, 4]) == IntBox(0, [3, 4])
        np.testing.assert_array_equal(box.num_categories, [3, 4])
        assert box.why_not(np.int32([2, 4])) == "holds 4 at index (1,), outside [0, 4)"
        equal = IntBox(high=[3, 3])
        assert equal.shape == (2,)
        assert equal.num_categories == 3

    def test_images(self):
        box = IntBox(0, 256, shape=(84, 84, 3), dtype="uint8", layout="channels_last", add_batch_rank=True)
        image = box.sample(2, rng=0)
        assert (image.shape, image.dtype, image.min(), image.max()) == ((2, 84, 84, 3), np.uint8, 0, 255)
        assert box.contains(image)
        assert box.bounded.all()

    def test_unbounded(self):
        box = IntBox(shape=(2,))
        assert not box.bounded.any()
        assert box.num_categories is None
        samples = box.sample(1000, rng=0)
        assert samples.dtype == np.int32
        assert samples.min() < 0 < samples.max()
        assert np.abs(samples).max() < 100  # small enough for any arithmetic
        assert box.contains(np.int32([2**31 - 1, -(2**31)]))

    @pytest.mark.parametrize("dtype", IntBox.DTYPES)
    def test_the_whole_range_of_each_dtype(self, dtype):
        limits = np.iinfo(dtype)
        box = IntBox(dtype=dtype)
        ends = np.array([limits.min, limits.max], dtype)
        assert IntBox(shape=(2,), dtype=dtype).contains(ends)
        assert IntBox(limits.min, limits.max + 1, dtype=dtype) == box
        assert box.high == min(limits.max + 1, np.iinfo(np.int64).max)
        assert box.with_batch_rank().contains(box.sample(50, rng=0))

    def test_bounded_on_one_side(self):
        top, bottom = 2**31, -(2**31)
        above = IntBox(7, top)
        assert not above.bounded
        assert 7 <= above.sample(1000, rng=0).min() < above.sample(1000, rng=0).max() < 100
        below = IntBox(bottom, -7)
        assert -100 < below.sample(1000, rng=0).min() < below.sample(1000, rng=0).max() <= -8

    def test_one_value(self):
        assert IntBox(3, 4).sample(rng=0) == 3
        assert IntBox(1).num_categories == 1

    def test_without_elements(self):
        box = IntBox(5, shape=(0,))
        assert box.num_categories.shape == (0,)
        assert box.contains(box.sample())
        assert IntBox(high=[]).shape == (0,)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: IntBox(0), "holds no value"),
            (lambda: IntBox(3, 3), "holds no value"),
            (lambda: IntBox(high=[2, 0]), "holds no value"),
            (lambda: IntBox(2.5), "not a whole number"),
            (lambda: IntBox(True), "not a whole number"),
            (lambda: IntBox([1.0, 2.0]), "not a whole number"),
            (lambda: IntBox(300, dtype="uint8"), "do not fit its dtype uint8"),
            (lambda: IntBox(-1, 3, dtype="uint8"), "do not fit its dtype uint8"),
            (lambda: IntBox(2**40), "wider dtype"),
            (lambda: IntBox(high=[3, 3], shape=(3,)), "do not fit its shape"),
            (lambda: IntBox(dtype="uint64"), "IntBox cannot have this dtype"),
        ],
    )
    def test_errors_teach(self, make, message):
        with pytest.raises(SpaceError, match=message):
            make()

    @quick
    @given(int_boxes())
    def test_samples_lie_inside(self, box):
        assert box.why_not(box.sample(rng=1)) is None


class TestBoolBox:
    def test_samples_are_fair(self):
        samples = BoolBox((3,), add_batch_rank=True).sample(10_000, rng=0)
        assert samples.dtype == bool
        np.testing.assert_allclose(samples.mean(axis=0), 0.5, atol=0.02)

    def test_contains(self):
        assert BoolBox().contains(np.True_)
        assert BoolBox().why_not(np.int8(1)) == "needs dtype bool, got int8"
        assert BoolBox().low is None
        assert BoolBox().high is None
