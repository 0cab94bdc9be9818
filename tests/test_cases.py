"""Which test holds each known fault and each number with a known answer; a case without its test fails here."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

#: Fault (as users of RL libraries meet them) -> tests that make it impossible, as "file::function".
FAULTS = {
    "1 recursion is cut at terminated or truncated": [
        "components/test_returns.py::test_constant_reward_truncated_every_five_steps",
        "agents/test_dqn.py::test_terminal_states_are_not_bootstrapped_and_truncated_ones_are",
    ],
    "2 terminated and truncated at once": [
        "components/test_returns.py::test_terminated_wins_over_truncated",
        "components/memories/test_n_step.py::test_terminated_wins_over_truncated",
    ],
    "3 stored rewards stay the environment's": ["components/test_returns.py::test_inputs_are_left_alone"],
    "4 bootstrap from the observation after the action": [
        "components/test_returns.py::test_bootstrap_is_from_the_observation_after_the_action",
        "algorithms/test_rollout_workers.py::test_trajectories_hold_the_next_transitions_of_each_environment",
    ],
    "5 one list of transitions in every autoreset mode": [
        "envs/test_transitions.py::test_every_kind_yields_the_same_transitions_and_episodes",
        "algorithms/test_rollout_workers.py::test_trajectories_hold_the_next_transitions_of_each_environment",
    ],
    "6 the true final observation": [
        "envs/test_transitions.py::test_every_kind_yields_the_same_transitions_and_episodes",
        "algorithms/test_rollout_workers.py::test_trajectories_hold_the_next_transitions_of_each_environment",
    ],
    "7 n-step windows stop at episode ends and at the cursor": [
        "components/memories/test_n_step.py::test_the_slot_before_the_write_cursor",
        "algorithms/test_rollout_workers.py::test_transitions_count_environment_steps_and_stop_at_episode_ends",
    ],
    "8 two halves of a training are not joined wrongly": [
        "envs/test_transitions.py::test_stopping_and_going_on_joins_nothing_wrongly",
        "components/memories/test_n_step.py::test_training_in_two_halves",
    ],
    "9 terminated masks values, episode_start resets state": [
        "agents/test_recurrent_ppo.py::test_values_bootstrap_by_the_state_of_the_episode_that_ended",
        "agents/test_recurrent_ppo.py::test_the_ratio_is_one_at_the_first_minibatch_of_every_update",
        "agents/test_recurrent_dqn.py::test_the_loss_is_that_of_a_loop_over_steps",
        "algorithms/test_rollout_workers.py::test_recurrent_state_starts_anew_with_each_episode_of_its_environment",
    ],
    "10 a reward at the last step, in fragments": [
        "algorithms/test_faults_on_ray.py::test_a_reward_at_the_last_step_arrives_and_no_step_is_invented"
    ],
    "11 the first observation after a reset": [
        "envs/test_transitions.py::test_every_kind_yields_the_same_transitions_and_episodes",
        "algorithms/test_rollout_workers.py::test_trajectories_hold_the_next_transitions_of_each_environment",
    ],
    "12 lives end values, not games": [
        "envs/test_atari.py::test_training_has_clipped_rewards_and_ends_with_lives_and_both_count_the_game"
    ],
    "13 saturated tanh": [
        "components/test_action_distribution.py::test_a_saturated_sample_has_a_finite_log_prob",
        "components/test_action_distribution.py::test_squashed_actions_at_the_bounds_are_clipped",
    ],
    "14 masked logits; all actions masked": [
        "components/test_distributions.py::test_a_masked_category_counts_as_absent",
        "components/test_distributions.py::test_gradients_of_masked_logits_are_finite",
        "agents/test_action_masks.py::test_where_no_action_is_allowed_the_agent_says_where",
        "agents/test_action_masks.py::test_where_no_action_is_allowed_the_environment_says_where",
        "agents/test_action_masks.py::test_forbidden_actions_are_never_taken",
    ],
    "15 extreme log_std": ["components/test_distributions.py::test_extreme_log_stds_are_clamped_with_finite_gradients"],
    "16 advantages that are one or equal": [
        "components/losses/test_ppo.py::test_equal_advantages_are_normalized_to_zero",
        "agents/test_ppo.py::test_a_minibatch_of_one_row_cannot_be_normalized",
    ],
    "17 no rescaling in unbounded dimensions": [
        "components/test_action_distribution.py::test_only_dimensions_with_two_bounds_are_squashed",
        "components/test_policies.py::test_actions_are_clipped_for_the_environment_only",
    ],
    "18 low == high and integer boxes": [
        "spaces/test_boxes.py::test_one_value",
        "components/test_action_distribution.py::test_environment_actions_and_back",
    ],
    "19 images are scaled exactly once, the layout is declared": [
        "components/test_encoders.py::test_a_white_image_reaches_the_network_as_one",
        "components/test_encoders.py::test_both_layouts_give_the_same_features",
        "components/test_encoders.py::test_an_undeclared_image_is_not_guessed",
    ],
    "20 Discrete with a start": [
        "spaces/test_gymnasium_spaces.py::test_policy_and_memory_hold_indices_the_start_is_added_at_the_boundary",
        "envs/test_boundary.py::test_starts_stay_at_the_boundary",
    ],
    "21 nested, empty and zero-size spaces": [
        "envs/test_boundary.py::test_nested_and_empty_spaces",
        "envs/test_boundary.py::test_blackjack",
        "zoo/test_zoo.py::test_every_agent_takes_every_observation_space",
    ],
    "22 every leaf influences the output": [
        "components/test_encoders.py::test_every_leaf_influences_the_features",
        "envs/test_boundary.py::test_both_of_two_keys_arrive",
    ],
    "23 cast once at the boundary": ["envs/test_boundary.py::test_everything_is_cast_once"],
    "24 priorities": [
        "components/memories/test_sum_tree.py::test_million_random_updates_leave_exact_sums",
        "components/memories/test_sum_tree.py::test_draws_match_priorities_and_never_hit_an_empty_leaf",
        "components/memories/test_prioritized.py::test_thousand_random_updates_between_inserts",
        "components/memories/test_prioritized.py::test_all_priorities_zero_draws_evenly",
    ],
    "25 an array that the environment mutates": [
        "envs/test_transitions.py::test_an_environment_that_reuses_its_array",
        "components/memories/test_replay.py::test_stored_records_do_not_follow_the_callers_array",
    ],
    "26 training before the memory can serve": [
        "agents/test_dqn.py::test_training_before_the_memory_can_serve_waits_and_says_so",
        "components/memories/test_replay.py::test_sampling_an_empty_memory_says_so",
    ],
    "27 seeds": [
        "envs/test_seeding.py::test_environments_workers_and_runs_share_no_first_observation",
        "envs/test_seeding.py::test_a_seed_repeats_exactly_random_actions_included",
        "agents/test_dqn.py::test_exploration_follows_its_schedule_and_repeats_with_the_seed",
    ],
    "28 twenty updates are ten, a checkpoint, and ten": [
        "algorithms/test_trainer.py::test_a_cut_run_equals_an_uncut_one",
    ],
    "29 schedules over two calls": [
        "components/test_schedules.py::test_a_run_in_two_halves_sees_the_values_of_one_run",
    ],
    "31 weights of compiled agents": [
        "graph/test_torch_compile.py::test_acting_and_an_update_by_gradient_descent",
    ],
    "32 damaged checkpoints": [
        "runs/test_checkpoint.py::test_damage_names_the_file_and_the_last_good_checkpoint",
        "runs/test_checkpoint.py::test_every_flipped_bit_is_noticed",
        "runs/test_checkpoint.py::test_the_last_good_one_is_the_newest_undamaged",
    ],
    "33 observation keys in another order": [
        "agents/test_acting.py::test_the_order_of_keys_does_not_matter",
        "spaces/test_json_form.py::test_the_order_of_keys_does_not_matter",
    ],
    "30 normalizer statistics": [
        "algorithms/test_faults_on_ray.py::test_normalizer_statistics_are_restored_on_remote_workers_and_frozen_in_evaluation"
    ],
    "34 intervals count environment steps and fire once per crossing": [
        "flow/test_counters.py::test_every_fires_once_per_crossing_with_32_environments",
        "flow/test_counters.py::test_intervals_are_independent_of_each_other",
        "agents/test_dqn.py::test_the_target_network_is_copied_once_per_crossing_of_its_interval",
    ],
    "35 evaluation has a quota per environment": [
        "envs/test_episodes.py::test_evaluation_does_not_favour_short_episodes"
    ],
    "36 schedules over few steps": ["components/test_schedules.py::test_no_division_by_zero_over_few_steps"],
    "37 eight workers, eight epsilons; evaluation is greedy": [
        "algorithms/test_ape_x.py::test_eight_workers_have_eight_epsilons",
        "algorithms/test_ape_x.py::test_workers_explore_by_their_epsilon_and_evaluation_does_not",
    ],
    "38 environments that raise, exit, hang, or give what cannot travel": [
        "algorithms/test_faults_on_ray.py::test_an_environment_that_fails_reaches_the_user",
        "algorithms/test_faults_on_ray.py::test_an_info_that_cannot_be_pickled_stays_where_it_is",
        "envs/test_failures.py::test_failures_in_processes",
    ],
    "39 an id that only the script registers": [
        "algorithms/test_faults_on_ray.py::test_an_environment_that_only_the_script_knows_is_shipped"
    ],
    "40 compilations and memory stay flat": [
        "agents/test_dqn.py::test_batches_of_changing_size_compile_nothing_new_and_leave_no_memory_behind",
    ],
    "41 padded episodes have the gradient of unpadded ones": [
        "agents/test_recurrent_dqn.py::test_padded_episodes_have_the_gradient_of_the_unpadded_ones",
        "components/test_recurrent_networks.py::test_padded_episodes_have_the_gradient_of_the_unpadded_ones",
    ],
    "42 agents that never act, are done at once, or skip steps": [
        "envs/test_multi_agent.py::test_an_agent_that_never_acts_has_a_return_and_no_transitions",
        "envs/test_multi_agent.py::test_an_agent_that_is_done_at_its_first_step_keeps_its_reward",
        "envs/test_multi_agent.py::test_an_agent_that_skips_steps_gets_all_rewards_until_it_is_asked_again",
        "envs/test_multi_agent.py::test_random_scripts_agree_with_a_look_at_each_agent_alone",
    ],
    "43 NaN from the environment": [
        "envs/test_failures.py::test_not_a_number",
        "envs/test_failures.py::test_not_a_number_names_the_leaf_and_the_reset",
    ],
}

#: Numbers with a known right answer -> tests.
ORACLES = {
    "DQN losses": [
        "components/losses/test_dqn.py::test_known_losses",
        "components/losses/test_dqn.py::test_huber_loss",
    ],
    "dueling": ["components/test_q_policies.py::test_dueling_oracle"],
    "n-step": ["components/test_returns.py::test_n_step_oracle", "components/memories/test_n_step.py::test_oracle"],
    "GAE and TD errors": ["components/test_returns.py::test_gae_has_the_known_numbers"],
    "split law": ["components/test_returns.py::test_split_law"],
    "LSTM": [
        "components/test_recurrent.py::test_oracle",
        "components/test_recurrent.py::test_weights_of_torch_give_what_torch_gives",
    ],
    "sum tree": [
        "components/memories/test_sum_tree.py::test_two_leaves_of_four",
        "components/memories/test_sum_tree.py::test_prefix_search_over_four_priorities",
    ],
    "priorities": ["components/memories/test_prioritized.py::test_probabilities_and_weights_of_four_priorities"],
    "eleven into ten": ["components/memories/test_replay.py::test_eleven_into_ten"],
    "schedules": [
        "components/test_schedules.py::test_linear_matches_the_known_numbers",
        "components/test_schedules.py::test_polynomial_of_power_two_matches_the_known_numbers",
        "components/test_exploration.py::test_epsilons_of_ape_x",
    ],
    "distributions": [
        "components/test_distributions.py::test_bernoulli_oracle",
        "components/test_distributions.py::test_normal_oracle",
        "components/test_distributions.py::test_a_masked_category_counts_as_absent",
    ],
    "V-trace": ["components/test_vtrace.py::test_the_known_numbers", "components/test_vtrace.py::test_split_law"],
    "space shapes": ["spaces/test_containers.py::test_shapes_of_the_oracle"],
    "grid world": [
        "envs/test_gridworld.py::test_the_2x2_world",
        "envs/test_gridworld.py::test_optimal_values_of_the_2x2_world",
    ],
}

#: Faults that were found in rlweave itself -> tests that make their kinds impossible; `*`: all of a file.
FOUND = {
    "1 offsets of integer actions": [
        "agents/test_action_spaces.py::test_actions_cover_every_space",
        "algorithms/test_action_spaces.py::test_environments_get_actions_of_the_whole_space",
    ],
    "2 scales of float actions": [
        "agents/test_action_spaces.py::test_actions_cover_every_space",
        "components/test_action_distribution.py::test_the_policys_numbers_cover_boxes_of_any_scale",
    ],
    "3 DQN on MultiBinary": [
        "algorithms/test_action_spaces.py::test_the_command_line_trains_and_evaluates",
        "algorithms/test_action_spaces.py::test_q_learning_learns_each_component_of_a_nested_action",
    ],
    "4 checkpoints end no episodes": [
        "algorithms/test_checkpoints_in_passing.py::test_how_often_checkpoints_are_taken_has_no_influence",
        "envs/test_saved_state.py::*",
    ],
    "5 one environment object twice": ["envs/test_contract.py::test_one_environment_is_not_stepped_by_two"],
    "6 integers outside of their box": ["envs/test_contract.py::test_integers_outside_of_their_box_are_refused"],
    "7 wrappers with statistics of their own": ["envs/test_running_statistics.py::*"],
    "8 agents that are never emptied": [
        "envs/test_multi_agent.py::test_an_episode_is_over_when_all_agents_have_ended_whatever_is_named",
    ],
    "9 rewards and flags": ["envs/test_contract.py::test_rewards_and_flags_are_what_they_must_be"],
    "10 the interface of old Gym": ["envs/test_contract.py::test_the_interface_of_old_gym_is_named"],
    "11 modules of the current directory": ["cli/test_current_directory.py::*"],
    "12 weights under other settings": [
        "agents/test_models.py::test_settings_that_change_what_weights_mean_are_compared",
    ],
    "13 models without memory": [
        "agents/test_models.py::test_a_model_is_what_acts_and_nothing_else",
        "agents/test_models.py::test_importing_changes_what_acts_and_nothing_else",
    ],
    "14 groups of runs in a plot": [
        "cli/test_commands.py::test_plot_groups_by_all_settings_but_the_seed_and_names_what_differs",
    ],
    "15 a full disk": [
        "cli/test_full_disk.py::*",
        "algorithms/test_saving.py::test_where_the_disk_is_full_a_training_goes_on_or_stops_as_is_set",
    ],
    "16 memory in checkpoints": [
        "algorithms/test_saving.py::test_a_memory_takes_as_much_as_is_filled_of_it",
        "runs/test_block_files.py::*",
    ],
    "17 a build that fails leaves nothing": [
        "cli/test_train.py::test_a_build_that_fails_leaves_nothing_and_the_corrected_command_works",
    ],
    "18 an optimizer that trains nothing": ["graph/test_unused_variables.py::*"],
    "19 shapes at the line": [
        "graph/test_laws_shapes.py::test_shapes_at_a_line_are_those_that_its_operands_have_there",
    ],
    "20 plug-ins that fail": ["cli/test_plugins.py::*"],
    "21 fixes that can be done": ["test_fixes.py::*"],
    "22 wrong keys, NumPy in graph functions": [
        "graph/test_misuse.py::test_a_wrong_key_names_the_nearest",
        "graph/test_misuse.py::test_mistakes_in_graph_functions",
    ],
    "23 vector environments that get ahead": [
        "algorithms/test_rollout_workers.py::test_no_environment_gets_ahead_without_bound",
    ],
    "24 strict JSON": ["test_strict_json.py::*"],
    "25 a longer resume": ["cli/test_train.py::test_resume_for_longer_keeps_schedules_as_planned_and_says_so"],
    "26 ranges of numbers": ["settings/test_ranges.py::*"],
    "27 appended components": ["graph/test_composition.py::*"],
    "28 reads beside updates": ["graph/test_threads.py::*"],
    "29 numbers of 64 bits": ["graph/test_wide_numbers.py::*"],
    "30 one path for devices": ["extensions/test_devices.py::test_devices_are_named_by_the_paths_that_weights_have"],
    "31 replicas": ["agents/test_replicas.py::test_only_agents_that_learn_by_gradients_of_a_batch_have_the_setting"],
    "32 a missing space": ["graph/test_build_errors.py::test_a_component_test_without_a_space_names_it"],
    "33 native modules": ["components/native/test_ranks_and_modes.py::*"],
    "34 mistakes in components": [
        "graph/test_misuse.py::*",
        "graph/test_unused_variables.py::test_the_owner_of_an_optimizer_hands_it_all_that_can_be_trained",
    ],
    "35 components of one's own by name": ["cli/test_imports.py::*"],
    "36 portable numbers, containers of actions": [
        "agents/test_acting.py::test_portable_random_numbers_are_a_setting_and_the_same_on_every_backend",
        "algorithms/test_action_spaces.py::test_q_learning_learns_each_component_of_a_nested_action",
    ],
    "37 convolutions in loops on JAX": ["backends/test_jax_loops.py::*"],
    "38 what best holds, bytes of pictures": [
        "algorithms/test_trainer.py::test_the_best_checkpoint_holds_what_acts_and_a_training_does_not_go_on_from_it",
        "components/memories/test_pictures.py::test_bytes_per_record",
    ],
    "39 signals": ["algorithms/test_rescue.py::*", "cli/test_interrupt.py::*"],
    "40 plots of unlike runs": [
        "view/test_curves.py::test_runs_of_one_group_share_a_line_and_a_band",
        "cli/test_commands.py::test_plot_groups_by_all_settings_but_the_seed_and_names_what_differs",
    ],
    "41 any installed backend": [
        "cli/test_installed_backends.py::*",
        "algorithms/test_loading.py::test_weights_act_on_any_installed_backend",
    ],
    "42 defaults": [
        "algorithms/test_images.py::test_images_get_an_image_network",
        "agents/test_ppo.py::test_minibatches_that_nobody_chose_have_about_64_rows",
    ],
    "43 readable settings and errors": [
        "cli/test_train.py::test_settings_are_readable_on_a_narrow_terminal",
        "settings/test_config.py::test_an_error_names_the_setting_and_its_type_as_users_write_them",
        "envs/test_making.py::test_a_missing_package_is_told_in_one_line",
    ],
    "44 what is displayed": [
        "flow/test_plan.py::test_the_mean_return_is_over_a_window_of_the_last_episodes",
        "envs/test_info_metrics.py::*",
        "agents/test_a2c.py::test_an_update_is_one_step_with_the_gradients_of_the_whole_or_the_average_of_its_parts",
    ],
    "45 the door from Python": ["algorithms/test_run.py::*", "test_docs.py::test_the_page_on_python"],
    "46 unions that absorb": [
        "flow/test_progress.py::test_a_branch_that_absorbs_all_it_gets_starves_nobody",
        "flow/test_progress.py::test_a_plan_that_moves_without_an_item_at_its_end_says_who_absorbs",
    ],
    "47 max_lag": ["flow/test_max_lag.py::*"],
    "48 the last message": [
        "flow/test_messages.py::test_the_last_message_is_part_of_a_checkpoint_and_workers_made_anew_know_it",
    ],
    "49 an absent address": ["flow/test_ray_engine.py::test_an_address_where_nobody_is_is_an_error_at_once"],
    "50 a learner that is replaced": [
        "algorithms/test_impala.py::test_a_learner_in_an_actor_that_fails_stops_the_training_or_is_replaced_as_the_settings_say",
    ],
    "51 sources that do not count": ["flow/test_own_parts.py::test_a_source_that_evaluates_is_not_counted_as_training"],
    "52 operators of one's own": [
        "flow/test_own_parts.py::*",
        "flow/test_progress.py::test_operators_of_every_kind_count_their_items",
    ],
    "53 tests on a busy machine": [
        "flow/test_ray.py::test_gradients_are_computed_in_the_workers_and_as_old_as_is_said",
        "flow/test_ray_references.py::test_items_go_from_worker_to_shard_and_not_through_the_driver",
    ],
    "54 fixes that fit the installation": ["test_packaging.py::test_a_missing_backend_names_its_extra"],
}


def functions_of(path):
    """Names of the test functions of a file, those in classes included."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("case", [*FAULTS, *FOUND, *ORACLES])
def test_each_case_has_its_tests(case):
    for test in (FAULTS | FOUND | ORACLES)[case]:
        path, _, function = test.partition("::")
        functions = functions_of(path)
        assert function in functions or (function == "*" and any(name.startswith("test_") for name in functions)), test


def test_all_faults_of_the_list_are_there():
    assert {int(name.split()[0]) for name in FAULTS} == {*range(1, 44)}
    assert {int(name.split()[0]) for name in FOUND} == {*range(1, 55)}
