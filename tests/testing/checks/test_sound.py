"""The sound components are right: each against a loop, a closed form or a law, without the help of any check."""

import math

import numpy as np
import pytest

from rlweave.testing.gradient_parity import build_probe, probe_arguments
from rlweave.testing.parity import build_described
from tests.testing.checks.sound import SOUND

BY_NAME = {descriptor.name: descriptor for descriptor in SOUND}


def built(name, backend="numpy"):
    return build_described(BY_NAME[name], backend, seed=1)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def weights(executor):
    return {path.split("/", 1)[1]: value for path, value in executor.get_weights().items()}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def loss_gradients(name, method, arguments):
    executor = build_probe(BY_NAME[name], "gradients", backend="torch")
    others = probe_arguments(BY_NAME[name], executor, rows=len(next(iter(arguments.values()))))
    return executor.gradients(others | {method: arguments}, method=method)


def test_there_are_at_least_twenty_and_each_has_a_test_here():
    assert len({descriptor.component for descriptor in SOUND}) >= 20
    tested = "".join(name for name in globals() if name.startswith("test_"))
    assert not [d.name for d in SOUND if d.name.replace("-", "_") not in tested]


def test_batch_attention_against_a_loop_over_rows():
    executor, x = built("batch-attention"), normal(5, 4)
    w = weights(executor)
    queries, values = (x @ w[f"{n}/kernel"] + w[f"{n}/bias"] for n in ("queries", "values"))
    keys = x @ w["keys/kernel"]
    expected = [sum(p * v for p, v in zip(softmax(keys @ q / math.sqrt(3)), values, strict=True)) for q in queries]
    np.testing.assert_allclose(executor.call(x), expected, rtol=1e-5, atol=1e-6)


def test_batch_attention_goes_along_with_the_order_of_rows():
    executor, x = built("batch-attention"), normal(5, 4)
    order = np.array([3, 1, 4, 0, 2])
    np.testing.assert_allclose(executor.call(x[order]), executor.call(x)[order], rtol=1e-5)


def test_layer_norm_gives_rows_of_mean_zero_and_deviation_one():
    result = built("layer-norm").call(100.0 * normal(6, 4) + 7.0)
    np.testing.assert_allclose(result.mean(-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(result.std(-1), 1.0, atol=1e-3)


def test_handmade_gru_against_a_loop_with_resets():
    executor = built("handmade-gru")
    w, inputs, state = weights(executor), normal(6, 2, 3), normal(2, 3, seed=1)
    starts = np.random.default_rng(2).random((6, 2)) < 0.4
    outputs, last = executor.call(inputs, state, starts)
    for row in range(2):
        h = state[row]
        for t in range(6):
            h = np.zeros(3) if starts[t, row] else h
            x, u = inputs[t, row] @ w["kernel"] + w["bias"], h @ w["recurrent_kernel"]
            r, z = (1 / (1 + np.exp(-(x[k : k + 3] + u[k : k + 3]))) for k in (0, 3))
            h = (1 - z) * np.tanh(x[6:] + r * u[6:]) + z * h
            np.testing.assert_allclose(outputs[t, row], h, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(last[row], h, rtol=1e-4, atol=1e-6)


def test_handmade_gru_in_two_fragments_is_as_in_one():
    executor = built("handmade-gru")
    inputs, state, starts = normal(6, 2, 3), normal(2, 3, seed=1), np.zeros((6, 2), bool)
    whole, last = executor.call(inputs, state, starts)
    first, between = executor.call(inputs[:4], state, starts[:4])
    second, end = executor.call(inputs[4:], between, starts[4:])
    np.testing.assert_allclose(np.concatenate([first, second]), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(end, last, rtol=1e-5, atol=1e-6)


def test_smoothing_of_a_pulse_is_symmetric_and_of_a_constant_the_constant():
    executor = built("smoothing")
    pulse = np.zeros((7, 1, 3), np.float32)
    pulse[3] = 1.0
    smooth = executor.call(pulse)
    np.testing.assert_allclose(smooth, smooth[::-1], atol=1e-6)
    np.testing.assert_allclose(smooth[4:, 0, 0], 0.5 * 0.4 * 0.6 ** np.arange(1, 4), atol=1e-6)
    np.testing.assert_allclose(executor.call(np.full((5, 2, 3), 2.5, np.float32)), 2.5)


def test_dropout_keeps_three_quarters_and_the_mean():
    x = np.full((20_000, 4), 3.0, np.float32)
    result = built("dropout").call(x, training=True)
    assert set(np.unique(result)) == {np.float32(0.0), np.float32(4.0)}
    assert abs((result > 0).mean() - 0.75) < 5 * math.sqrt(0.75 * 0.25 / result.size)
    assert abs(np.corrcoef(result[:-1, 0], result[1:, 0])[0, 1]) < 0.04, "rows are independent"


def test_dropout_off_changes_nothing():
    x = normal(3, 4)
    np.testing.assert_array_equal(built("dropout-off").call(x, training=False), x)


def test_mixture_density_integrates_to_one_and_is_what_is_drawn():
    executor, observation = built("mixture-density"), normal(1, 4)
    grid = np.linspace(-40.0, 40.0, 20_001, dtype=np.float32)
    rows = np.repeat(observation, len(grid), 0)
    density = np.exp(executor.log_prob(rows, grid).astype(np.float64))
    assert abs(np.trapezoid(density, grid) - 1.0) < 1e-4
    drawn = executor.sample(rows)
    mean = np.trapezoid(grid * density, grid)
    deviation = math.sqrt(np.trapezoid((grid - mean) ** 2 * density, grid))
    assert abs(drawn.mean() - mean) < 5 * deviation / math.sqrt(len(drawn))
    shares = np.cumsum(density) * (grid[1] - grid[0])
    for level in (0.1, 0.5, 0.9):
        at = grid[np.searchsorted(shares, level)]
        assert abs((drawn <= at).mean() - level) < 5 * math.sqrt(level * (1 - level) / len(drawn))


def test_frame_difference_is_zero_at_the_first_frame():
    executor, frames, starts = built("frame-difference"), normal(4, 3, 4), np.zeros((4, 3), bool)
    starts[0], starts[2, 1] = True, True
    state = normal(3, 4, seed=5)
    for t in range(4):
        difference, state = executor.call(frames[t], state, starts[t])
        expected = np.where(starts[t][:, None], 0.0, frames[t] - frames[max(t - 1, 0)])
        np.testing.assert_allclose(difference, expected, atol=1e-6)


def test_embedding_gives_rows_of_its_table():
    executor, items = built("embedding"), np.array([3, 3, 0, 9], np.int32)
    np.testing.assert_array_equal(executor.call(items), weights(executor)["table"][items])


def test_discrete_encoder_draws_by_its_probabilities():
    executor, observation = built("discrete-encoder"), normal(1, 4)
    w = weights(executor)
    probabilities = softmax(observation @ w["dense/kernel"] + w["dense/bias"])[0]
    codes = executor.encode(np.repeat(observation, 20_000, 0))
    np.testing.assert_allclose(codes.sum(-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(np.sort(codes, -1)[:, -1], 1.0, atol=1e-5)
    np.testing.assert_allclose(codes.mean(0), probabilities, atol=5 * math.sqrt(0.25 / 20_000))


def test_normalized_advantages_do_not_depend_on_scale_and_shift():
    executor, advantages, log_probs = built("normalized-advantages"), normal(9), -np.abs(normal(9, seed=1))
    expected = -np.mean(log_probs * (advantages - advantages.mean()) / advantages.std())
    np.testing.assert_allclose(executor.loss(log_probs, advantages), expected, rtol=1e-5)
    np.testing.assert_allclose(executor.loss(log_probs, 7.0 * advantages + 3.0), expected, rtol=1e-4)
    assert executor.loss(log_probs, np.full(9, 4.1, np.float32)) == 0.0
    assert executor.loss(log_probs[:1], advantages[:1]) == 0.0


def test_masked_loss_is_that_of_the_steps_that_count_whatever_the_padding_holds():
    executor, mask = built("masked-loss"), np.random.default_rng(0).random((5, 3)) < 0.6
    values, returns = normal(5, 3), normal(5, 3, seed=1)
    expected = np.mean((values[mask] - returns[mask]) ** 2)
    for garbage in (0.0, np.inf, np.nan):
        padded = np.where(mask, values, garbage).astype(np.float32)
        np.testing.assert_allclose(executor.loss(padded, returns, mask), expected, rtol=1e-5)
    assert executor.loss(values, returns, np.zeros_like(mask)) == 0.0


def test_quantile_loss_against_a_loop_over_pairs():
    quantiles, targets = 2.0 * normal(3, 5), 2.0 * normal(3, 5, seed=1)
    total = 0.0
    for row in range(3):
        for i in range(5):
            for j in range(5):
                error = targets[row, j] - quantiles[row, i]
                huber = 0.5 * error**2 if abs(error) <= 1.0 else abs(error) - 0.5
                total += abs((i + 0.5) / 5 - (error < 0)) * huber / 5 / 3
    np.testing.assert_allclose(built("quantile-loss").loss(quantiles, targets), total, rtol=1e-5)


def test_contrastive_loss_against_a_loop_over_rows():
    executor, x, y = built("contrastive"), normal(4, 4), normal(4, 4, seed=1)
    w = weights(executor)
    anchors, others = (np.tanh(z @ w["dense/kernel"] + w["dense/bias"]) for z in (x, y))
    losses = [-math.log(softmax(others @ anchor)[row]) for row, anchor in enumerate(anchors)]
    np.testing.assert_allclose(executor.loss(x, y), np.mean(losses), rtol=1e-5)


def test_categorical_loss_projects_as_a_loop_does_and_keeps_the_mean():
    executor, atoms = built("categorical-loss"), np.linspace(-2.0, 2.0, 5)
    rewards, logits = np.array([0.3, -0.7, 5.0, 1.0], np.float32), normal(4, 5)
    terminated = np.array([False, False, False, True])
    projected = executor.target_probabilities(rewards, terminated, logits)
    expected = np.zeros((4, 5))
    for row in range(4):
        for share, atom in zip(softmax(logits[row]), atoms, strict=True):
            place = np.clip(rewards[row] + (0.0 if terminated[row] else 0.9 * atom), -2.0, 2.0) + 2.0
            low, high = math.floor(place), math.ceil(place)
            expected[row, low] += share * (1.0 if low == high else high - place)
            expected[row, high] += 0.0 if low == high else share * (place - low)
    np.testing.assert_allclose(projected, expected, atol=1e-5)
    np.testing.assert_allclose(projected.sum(-1), 1.0, atol=1e-5)
    predicted = normal(4, 5, seed=3)
    cross_entropy = -np.mean(np.sum(expected * np.log(softmax(predicted)), -1))
    np.testing.assert_allclose(executor.loss(predicted, rewards, terminated, logits), cross_entropy, rtol=1e-5)


def test_importance_weights_are_those_of_the_paper():
    priorities = np.array([0.5, 2.0, 8.0, 1.0], np.float32)
    chances = priorities**0.6 / np.sum(priorities**0.6)
    expected = (4 * chances) ** -0.4
    np.testing.assert_allclose(built("importance-weights").call(priorities), expected / expected.max(), rtol=1e-5)


def test_polyak_moves_the_target_by_a_tenth_and_only_the_network_learns():
    executor = built("polyak")
    path = "polyak/network/kernel"
    executor.set_weights({path: executor.get_weights()[path] + 1.0})
    before = weights(executor)
    executor.follow()
    moved = 0.9 * before["target-network/kernel"] + 0.1 * before["network/kernel"]
    np.testing.assert_allclose(weights(executor)["target-network/kernel"], moved, rtol=1e-5)
    arguments = BY_NAME["polyak"].sample(executor.root, "loss", 5)
    gradients = loss_gradients("polyak", "loss", arguments)
    assert all("target" not in path for path in gradients["variables"])
    assert not np.any(gradients["inputs"]["next_observations"])
    w, x, y = weights(executor), arguments["observations"], arguments["next_observations"]
    following = np.max(y @ w["target-network/kernel"] + w["target-network/bias"], -1)
    targets = arguments["rewards"] + 0.9 * np.where(arguments["terminated"], 0.0, following)
    chosen = (x @ w["network/kernel"] + w["network/bias"])[np.arange(5), arguments["actions"]]
    np.testing.assert_allclose(executor.loss(**arguments), np.mean((chosen - targets) ** 2), rtol=1e-5)


@pytest.fixture
def steps():
    rng = np.random.default_rng(0)
    rewards, next_values = rng.normal(size=(2, 8, 3)).astype(np.float32)
    return rewards, next_values, rng.random((8, 3)) < 0.2, rng.random((8, 3)) < 0.2


def test_lambda_returns_against_a_loop(steps):
    rewards, next_values, terminated, truncated = steps
    result = built("lambda-returns").estimate(*steps)
    for row in range(3):
        following = None
        for t in reversed(range(8)):
            value = 0.0 if terminated[t, row] else next_values[t, row]
            if following is None or terminated[t, row] or truncated[t, row]:
                following = value
            following = rewards[t, row] + 0.9 * (0.3 * value + 0.7 * following)
            np.testing.assert_allclose(result[t, row], following, rtol=1e-4, atol=1e-5)


def test_two_step_returns_against_a_loop(steps):
    rewards, next_values, terminated, truncated = steps
    result = built("two-step-returns").estimate(*steps)
    for row in range(3):
        for t in range(8):
            total, factor, at = 0.0, 1.0, t
            for at in range(t, min(t + 2, 8)):
                total += factor * rewards[at, row]
                factor *= 0.9
                if terminated[at, row] or truncated[at, row]:
                    break
            total += 0.0 if terminated[at, row] else factor * next_values[at, row]
            np.testing.assert_allclose(result[t, row], total, rtol=1e-4, atol=1e-5)


def test_running_scale_knows_the_moments_of_all_batches_together():
    executor = built("running-scale")
    batches = [3.0 * normal(n, 4, seed=n) + 5.0 for n in (1, 4, 9)]
    for batch in batches:
        executor.update(batch)
    everything, x = np.concatenate(batches), normal(2, 4)
    expected = (x - everything.mean(0)) / np.sqrt(everything.var(0) + 1e-4)
    np.testing.assert_allclose(executor.call(x), expected, rtol=1e-4)
    state = executor.state_dict()
    executor.call(x)
    assert all(np.array_equal(value, state[path]) for path, value in executor.state_dict().items())


def test_distillation_is_the_distance_to_a_network_that_never_learns():
    executor, x = built("distillation"), normal(5, 4)
    w = weights(executor)
    wanted = np.tanh(x @ w["random/kernel"] + w["random/bias"])
    distances = np.mean((x @ w["predictor/kernel"] + w["predictor/bias"] - wanted) ** 2, -1)
    np.testing.assert_allclose(executor.bonus(x), distances, rtol=1e-5)
    np.testing.assert_allclose(executor.loss(x), distances.mean(), rtol=1e-5)
    gradients = loss_gradients("distillation", "loss", {"observations": x})["variables"]
    assert sorted(path.split("/")[-2] for path in gradients) == ["predictor", "predictor"]
    assert all(np.any(gradient) for gradient in gradients.values())


def test_count_bonus_counts_states_that_come_twice_in_a_batch():
    executor, states = built("count-bonus"), np.arange(6, dtype=np.int32)
    np.testing.assert_allclose(executor.bonus(states), 1.0)
    executor.visit(np.array([2, 2, 5, 2], np.int32))
    executor.visit(np.array([5], np.int32))
    np.testing.assert_allclose(executor.bonus(states), 1 / np.sqrt([1, 1, 4, 1, 1, 3]), rtol=1e-6)


def test_curriculum_rises_with_every_ten_successes_up_to_the_last_level():
    executor, levels = built("curriculum"), []
    for _ in range(9):
        levels.append(int(executor.level()))
        executor.record(np.array([True] * 7 + [False] * 2))
    assert levels == [0, 0, 1, 2, 2, 3, 3, 3, 3]
