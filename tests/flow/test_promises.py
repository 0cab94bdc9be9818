"""Engines x promises: which promise of the design's section on flow is tested where.

An engine that is added gets a column here, and a test for every promise that it can break.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.flow import conftest

IN_PROCESS = ("local", "simulated")
"""``simulated`` is the fake engine of these tests: calls take (virtual) time, as they do on a cluster."""

ENGINES = (*IN_PROCESS, "ray")

BOTH = "both"
"""The test runs on both engines of this process."""

PROMISES: dict[str, dict[str, list[str]]] = {
    "wrong composition is an error at construction naming operators and types": {
        "local": [
            "test_stream.py::test_wrong_composition_is_refused_at_once",
            "test_stream.py::test_an_output_that_nobody_consumes_is_refused",
            "test_stream.py::test_a_memory_that_can_never_fill_is_refused",
            "test_stream.py::test_a_rate_limiter_that_can_never_open_is_refused",
            "test_stream.py::test_a_stream_used_twice_names_all_three_operators",
            "test_stream.py::test_an_operator_object_used_twice_is_refused",
            "test_stream.py::test_workers_that_the_plan_does_not_sample_from_are_refused",
        ],
        "simulated": [],
    },
    "nothing runs before the plan starts": {
        "local": ["test_stream.py::test_composing_starts_nothing"],
        "simulated": [],
    },
    "per source, item i is done before item i + 1 is requested": {
        BOTH: ["test_gather.py::test_an_item_is_done_before_the_next_one_is_requested_of_its_source"],
        "ray": [
            "test_ray.py::test_an_item_is_done_before_the_next_one_of_its_source_is_begun",
        ],
    },
    "the weight lag of every item is known, and exact on local": {
        "local": [
            "test_gather.py::test_gather_async_is_exactly_n_minus_1_behind_on_local",
            "test_gather.py::test_gather_sync_has_no_lag_on_local",
            "test_gradients.py::test_a3c_trains_on_gradients_at_most_n_minus_1_versions_old_on_local",
        ],
        "simulated": ["test_gather.py::test_a_slow_workers_lag_is_measured"],
        "ray": [
            "test_ray.py::test_the_lag_of_every_item_is_measured",
            "test_ray.py::test_gradients_are_computed_in_the_workers_and_as_old_as_is_said",
        ],
    },
    "lag is bounded by max_lag where asked": {
        BOTH: ["test_max_lag.py::test_a_learner_whose_weights_are_published_seldom_still_gets_items_to_train_on"],
        "local": [
            "test_gather.py::test_items_too_old_are_dropped_and_counted",
            "test_max_lag.py::test_whatever_lies_between_gather_and_learner_the_bound_holds_and_learning_goes_on",
        ],
        "simulated": [
            "test_gather_bounds.py::test_waiting_bounds_the_lag_without_a_loss_and_costs_time",
            "test_gather_bounds.py::test_what_is_too_old_although_others_waited_is_dropped_and_counted",
            "test_max_lag.py::test_items_that_age_in_the_queue_of_a_learner_in_an_actor",
        ],
        "ray": [
            "test_ray.py::test_lag_is_bounded_where_asked",
        ],
    },
    "gather_sync is a barrier; messages are seen by the next round": {
        BOTH: [
            "test_gather.py::test_a_round_sees_all_messages_of_the_round_before_and_none_of_its_own",
            "test_messages.py::test_messages_of_a_round_are_seen_by_the_next_one",
        ],
        "local": ["test_gather.py::test_nothing_upstream_runs_while_a_round_is_processed"],
        "simulated": ["test_gather.py::test_a_slow_worker_holds_up_every_round_of_a_barrier"],
        "ray": [
            "test_ray.py::test_a_barrier_shows_every_round_the_weights_of_the_round_before",
        ],
    },
    "weights are put once per version": {
        "local": [
            "test_rl_operators.py::test_weights_are_read_and_put_once_per_version_however_many_workers",
            "test_rl_operators.py::test_a_learner_with_many_updates_between_two_items_is_read_once_per_item",
        ],
        "simulated": [],
    },
    "workers get the learner's weights before their first item": {
        BOTH: ["test_rl_operators.py::test_workers_get_the_learners_weights_before_their_first_item"],
        "ray": [
            "test_ray.py::test_a_dead_actor_is_replaced_in_place",
            "test_ray.py::test_a_barrier_shows_every_round_the_weights_of_the_round_before",
        ],
    },
    "the scheduler waits on events and never spins": {
        "local": ["test_plan.py::test_a_plan_in_which_nothing_can_move_says_what_each_operator_lacks"],
        "simulated": [
            "test_gather.py::test_waiting_is_one_call_of_the_engine_per_event",
            "test_plan.py::test_not_ready_is_a_value_and_the_plan_goes_on_when_something_arrives",
            "test_plan.py::test_a_result_that_arrives_between_step_and_wait_is_no_stall",
        ],
        "ray": [
            "test_ray_promises.py::test_an_idle_plan_costs_less_than_2_percent_of_a_core_more_than_its_idle_actors",
        ],
    },
    "a source that is not ready is passed over": {
        "local": ["test_branching.py::test_a_branch_that_is_not_ready_is_passed_over"],
        "simulated": ["test_gather.py::test_a_slow_worker_does_not_hold_up_an_asynchronous_gather"],
    },
    "a union starves no branch, and a plan that is busy with nothing says so": {
        BOTH: [
            "test_progress.py::test_a_branch_that_absorbs_all_it_gets_starves_nobody",
            "test_progress.py::test_whatever_the_branches_do_each_that_has_items_gives_some",
        ],
        "local": ["test_progress.py::test_a_plan_that_moves_without_an_item_at_its_end_says_who_absorbs"],
    },
    "every edge is bounded; block and drop as declared, drops counted": {
        "local": [
            "test_branching.py::test_every_edge_is_bounded",
            "test_branching.py::test_a_full_queue_blocks_its_source_and_drops_nothing",
            "test_branching.py::test_drop_oldest_keeps_the_newest_and_counts",
            "test_branching.py::test_drop_newest_keeps_the_oldest_and_counts",
            "test_conformance.py::test_no_edge_ever_holds_more_than_it_says",
        ],
        "simulated": [
            "test_branching.py::test_an_empty_queue_with_a_slow_source_is_not_ready",
            "test_conformance.py::test_no_edge_ever_holds_more_than_it_says",
        ],
    },
    "messages to busy workers are bounded; the newest stay, the others are counted": {
        BOTH: ["test_messages.py::test_where_calls_run_at_once_nothing_is_ever_left_out"],
        "simulated": [
            "test_messages.py::test_messages_to_a_busy_worker_are_bounded_and_what_is_left_out_is_counted",
            "test_messages.py::test_a_checkpoint_leaves_no_message_behind",
        ],
        "ray": ["test_ray_promises.py::test_messages_to_a_busy_worker_are_bounded"],
    },
    "split: skew within the capacity, no shared mutations": {
        "local": [
            "test_branching.py::test_branches_are_apart_by_no_more_than_the_capacity",
            "test_branching.py::test_branches_do_not_see_each_others_mutations",
        ],
        "simulated": [],
    },
    "the end of a finite stream flushes every buffer": {
        BOTH: [
            "test_branching.py::test_batch_flushes_at_the_end",
            "test_branching.py::test_concat_flushes_at_the_end",
            "test_conformance.py::test_the_end_of_a_finite_stream_flushes_it",
            "test_conformance.py::test_what_flows_out_at_the_end_of_a_memory_is_trained_on",
            "test_gather.py::test_the_end_of_every_source_is_the_end_of_the_stream_and_no_item_is_lost",
            "test_rate_limit.py::test_what_is_owed_is_still_trained_when_the_rollouts_end_and_then_the_plan_ends",
        ],
        "local": ["test_conformance.py::test_everything_that_keeps_items_back_has_a_case"],
        "ray": ["test_ray_promises.py::test_the_end_of_finite_workers_flushes_every_buffer"],
    },
    "samples of a memory in shards: priorities go back to their shard, asked for as declared": {
        BOTH: [
            "test_parallel_replay.py::test_priorities_go_back_to_the_shard_that_a_sample_came_from",
            "test_parallel_replay.py::test_no_shard_is_asked_for_more_than_num_async_batches_ahead",
        ],
        "simulated": [
            "test_parallel_replay.py::test_samples_that_overtake_each_other_still_know_their_shard",
            "test_parallel_replay.py::test_items_on_their_way_to_a_shard_are_bounded_and_nothing_is_dropped",
        ],
        "ray": ["test_ray_replay.py::test_the_replay_ratio_holds_and_priorities_find_their_shard"],
    },
    "a shard that dies is replaced in place; what it held is counted": {
        "local": [],
        "simulated": [
            "test_parallel_replay.py::test_a_shard_that_dies_is_replaced_in_place_and_what_it_held_is_counted",
            "test_parallel_replay.py::test_a_shard_found_dead_by_who_stores_is_replaced_before_it_is_ever_asked",
        ],
        "ray": ["test_ray_replay.py::test_a_killed_shard_is_replaced_in_place_and_what_was_lost_is_counted"],
    },
    "an item knows its own source": {
        BOTH: ["test_gather.py::test_sources_take_turns_in_order"],
        "local": ["test_branching.py::test_a_merged_item_knows_its_parts_and_is_as_old_as_the_oldest"],
        "ray": [
            "test_ray.py::test_several_fragments_travel_in_one_call",
        ],
    },
    "a failure names operator, actor and item, with the original error": {
        BOTH: [
            "test_plan.py::test_a_failing_worker_is_named_with_actor_item_and_cause",
            "test_plan.py::test_a_failing_operator_is_named_with_item_and_cause",
        ],
        "ray": [
            "test_ray.py::test_a_failure_names_operator_actor_and_item_with_the_original_traceback",
            "test_ray.py::test_an_operator_at_the_workers_is_named",
            "test_ray.py::test_an_error_that_cannot_travel_comes_as_its_text",
            "test_ray.py::test_a_worker_that_cannot_be_made_is_an_error_at_the_start",
        ],
    },
    "stopping lets the item on its way go through": {
        "local": [
            "test_plan.py::test_stop_lets_the_item_on_its_way_go_through",
            "test_plan.py::test_ctrl_c_stops_after_the_item_and_a_second_one_interrupts",
        ],
        "simulated": ["test_gather.py::test_waiting_ends_after_its_limit_so_that_stop_is_heeded"],
        "ray": [
            "test_ray.py::test_stopping_ends_every_process_within_a_bounded_time",
        ],
    },
    "cut at a checkpoint and resumed equals uncut": {
        "local": [
            "test_checkpoint.py::test_cut_and_resumed_equals_uncut",
            "test_conformance.py::test_whatever_has_a_state_is_cut_and_resumed_in_a_test",
            "test_parallel_replay.py::test_cut_and_resumed_equals_uncut",
        ],
        "simulated": [],
        "ray": [
            "test_ray.py::test_a_plan_goes_on_from_a_checkpoint_without_losing_an_item",
        ],
    },
    "the replay ratio is what rate_limit says, to 1 %": {
        BOTH: [
            "test_rate_limit.py::test_trained_samples_per_step_hold_to_one_percent",
            "test_parallel_replay.py::test_trained_samples_per_step_hold_to_one_percent",
        ],
        "simulated": [
            "test_rate_limit.py::test_with_real_delays_the_ratio_holds_and_the_plan_waits_for_the_rollouts",
        ],
        "ray": [
            "test_ray_promises.py::test_the_replay_ratio_holds_to_one_percent",
            "test_ray_replay.py::test_the_replay_ratio_holds_and_priorities_find_their_shard",
        ],
    },
    "counters count what their names say": {
        BOTH: ["test_plan.py::test_reports_count_what_their_names_say"],
        "local": ["test_plan.py::test_saving_every_50_000_steps_with_32_environments_fires_once_per_crossing"],
        "ray": [
            "test_ray.py::test_a_dead_actor_is_replaced_in_place",
        ],
    },
    "gradients are averaged by their samples, and counted as what they are": {
        BOTH: [
            "test_gradients.py::test_counters_and_metrics_of_a3c_mean_what_their_names_say",
            "test_gradients.py::test_gradients_of_a_round_are_averaged_without_lag",
            "test_gradients.py::test_micro_batches_are_one_step_with_the_mean_over_all_samples",
        ],
        "local": ["test_gradients.py::test_each_part_counts_by_its_samples"],
        "ray": ["test_ray.py::test_gradients_are_computed_in_the_workers_and_as_old_as_is_said"],
    },
    "a quorum: late items come in a later round, marked": {
        BOTH: ["test_gather_bounds.py::test_a_merged_item_is_as_late_as_its_latest_part"],
        "simulated": ["test_gather_bounds.py::test_a_quorum_closes_the_round_after_its_time_and_late_items_say_so"],
        "ray": ["test_ray.py::test_a_quorum_does_not_wait_for_a_slow_worker_whose_item_comes_marked"],
    },
    "a failure skips the item, or replaces the actor in place; what is lost is counted": {
        "local": [
            "test_failures.py::test_skipping_leaves_the_item_out_and_counts_it",
            "test_failures.py::test_a_failed_actor_is_replaced_in_place",
        ],
        "simulated": [
            "test_failures.py::test_the_others_do_not_wait_for_the_new_one",
            "test_failures.py::test_what_was_asked_of_a_dead_actor_is_purged_and_counted",
        ],
        "ray": [
            "test_ray.py::test_skipping_an_environment_that_raises",
            "test_ray.py::test_a_dead_actor_is_replaced_in_place",
            "test_ray.py::test_a_killed_actor_is_replaced_and_its_results_are_purged",
            "test_ray.py::test_messages_reach_all_workers_and_their_replacements",
        ],
    },
    "back-off is bounded; all actors gone is an error after a bounded wait": {
        "local": ["test_failures.py::test_delays_double_up_to_a_bound_and_all_actors_gone_is_an_error"],
        "simulated": ["test_failures.py::test_delays_double_up_to_a_bound_and_all_actors_gone_is_an_error"],
        "ray": ["test_ray.py::test_all_actors_gone_is_an_error_after_a_bounded_wait"],
    },
    "a hanging actor is noticed": {
        "local": [],
        "simulated": [
            "test_failures.py::test_a_hanging_actor_is_an_error_that_names_it",
            "test_failures.py::test_a_hanging_actor_is_replaced",
            "test_learner_actor.py::test_a_hanging_learner_is_an_error",
        ],
        "ray": ["test_ray.py::test_a_hanging_actor_is_replaced"],
    },
    "more resources than there are is refused with the sum": {
        "local": ["test_learner_actor.py::test_more_than_there_is_is_refused_with_the_sum_before_anything_is_made"],
        "simulated": ["test_learner_actor.py::test_more_than_there_is_is_refused_with_the_sum_before_anything_is_made"],
        "ray": ["test_ray.py::test_more_than_there_is_is_refused_with_the_sum"],
    },
    "a learner may live in an actor; weights go from there to the workers": {
        BOTH: ["test_learner_actor.py::test_it_trains_and_its_weights_reach_the_workers"],
        "ray": ["test_ray.py::test_a_learner_in_an_actor_trains_there_and_feeds_the_workers"],
    },
    "a learner in an actor is replaced in place; what is lost is counted": {
        BOTH: ["test_learner_actor.py::test_it_is_made_anew_in_place_and_what_was_lost_is_counted"],
        "simulated": ["test_learner_actor.py::test_workers_go_on_with_the_weights_they_have_until_it_is_there"],
        "ray": ["test_faults_on_ray.py::test_a_learner_is_made_anew_in_place"],
    },
    "a plan can be an actor in another plan": {
        BOTH: ["test_nesting.py::test_a_plan_is_a_worker_of_another"],
        "ray": [
            "test_nesting.py::test_inner_plans_have_workers_of_their_own_on_ray",
            "test_nesting.py::test_workers_of_a_plan_whose_driver_is_killed_do_not_stay",
        ],
    },
    "driver actors take no core; resources of inner plans are summed": {
        "local": ["test_nesting.py::test_plans_driven_from_this_process_are_summed_as_well"],
        "simulated": ["test_nesting.py::test_resources_of_inner_plans_are_summed_and_refused_before_anything_is_made"],
        "ray": ["test_nesting.py::test_trials_that_would_wait_for_each_other_are_refused"],
    },
    "items by reference keep every promise of those by value": {
        BOTH: [
            "test_item_reference.py::test_items_order_lag_and_counters_are_those_by_value",
            "test_item_reference.py::test_shards_get_what_they_get_by_value",
            "test_item_reference.py::test_branches_of_a_split_do_not_see_each_others_mutations",
            "test_item_reference.py::test_an_error_at_a_worker_names_operator_actor_and_item",
            "test_item_reference.py::test_a_restored_reference_has_its_item_and_goes_to_shards",
        ],
        "local": ["test_item_reference.py::test_who_needs_the_item_itself_is_refused_at_construction"],
        "simulated": [
            "test_item_reference.py::test_items_are_let_go_when_their_shard_has_them",
            "test_item_reference.py::test_items_too_old_are_dropped_counted_and_let_go",
            "test_item_reference.py::test_an_item_lost_on_its_way_is_counted_and_its_shard_is_not_blamed",
            "test_item_reference.py::test_a_worker_that_dies_after_it_told_of_an_item",
            "test_item_reference.py::test_a_checkpoint_leaves_out_what_is_lost_and_asks_for_more",
        ],
        "ray": [
            "test_ray_references.py::test_items_go_from_worker_to_shard_and_not_through_the_driver",
            "test_ray_references.py::test_ends_items_left_out_and_calls_that_fail_midway",
            "test_ray_references.py::test_an_error_of_a_worker_reaches_the_plan_with_its_traceback",
            "test_ray_references.py::test_a_worker_that_dies_is_made_anew_and_no_shard_is_blamed",
            "test_ray_references.py::test_items_lost_with_the_machine_of_their_worker_are_counted_and_no_shard_is_blamed",
            "test_ray_replay.py::test_a_killed_shard_is_replaced_in_place_and_what_was_lost_is_counted",
        ],
    },
    "items are copied; nothing stays pinned or open": {
        "local": [],
        "ray": [
            "test_ray.py::test_items_are_copied_out_of_the_object_store_and_nothing_stays_open",
            "test_ray.py::test_kept_items_do_not_pin_the_object_store",
        ],
    },
    "a worker on NumPy imports no framework": {
        "local": [],
        "ray": ["test_ray.py::test_a_worker_on_numpy_imports_no_framework"],
    },
    "zero-length training ends cleanly": {
        BOTH: ["test_plan.py::test_workers_with_nothing_to_give_end_the_plan_cleanly"],
        "local": ["test_plan.py::test_training_of_length_zero_ends_cleanly"],
    },
}


@cache
def names_in(file: str) -> dict[str, set[str]]:
    """Names of the tests in a file, each with the names of its arguments."""
    tree = ast.parse((Path(__file__).parent / file).read_text())
    return {
        node.name: {argument.arg for argument in node.args.args}
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_names_tests_that_exist(promise: str) -> None:
    columns = PROMISES[promise]
    assert columns.keys() <= {*ENGINES, BOTH}
    named = [(column, test) for column, tests in columns.items() for test in tests]
    only_elsewhere = "local" in columns and not columns["local"]  # what can only happen to another process
    assert only_elsewhere or any(column in ("local", BOTH) for column, _ in named), "tested on the default engine"
    for column, test in named:
        file, name = test.split("::")
        assert name in names_in(file)
        if column == BOTH:
            assert "start" in names_in(file)[name], "a test on both engines uses the fixture that starts on each"


def test_the_fixture_starts_on_every_engine_of_this_process() -> None:
    source = Path(conftest.__file__).read_text()
    assert f"params={list(IN_PROCESS)}".replace("'", '"') in source
