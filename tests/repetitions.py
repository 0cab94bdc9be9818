"""Rows of tests that show on one more backend or setting what another row shows of the same code: they are thorough.

`conftest.py` marks them; CI has the others.
"""

AGENTS, ALGORITHMS = "tests/agents/test_", "tests/algorithms/test_"

#: How the ids of tests begin.
REPETITIONS = (
    # Runs that are cut and resumed: in CI each algorithm and each backend once, not each with each.
    f"{ALGORITHMS}trainer.py::test_a_cut_run_equals_an_uncut_one[ppo-jax-numpy",
    f"{ALGORITHMS}trainer.py::test_a_cut_run_equals_an_uncut_one[ppo-torch-None",
    f"{ALGORITHMS}trainer.py::test_a_cut_run_equals_an_uncut_one[dqn-jax-None",
    f"{ALGORITHMS}trainer.py::test_a_cut_run_equals_an_uncut_one[dqn-torch-numpy",
    f"{ALGORITHMS}trainer.py::test_a_cut_run_of_recurrent_networks_equals_an_uncut_one[ppo",
    f"{ALGORITHMS}trainer.py::test_a_run_that_is_cut_twice_equals_an_uncut_one[dqn",
    f"{ALGORITHMS}trainer.py::test_several_workers_in_turns_are_deterministic_and_resume_exactly[dqn-local",
    f"{ALGORITHMS}trainer.py::test_several_workers_in_turns_are_deterministic_and_resume_exactly[ppo-async",
    f"{ALGORITHMS}trainer.py::test_several_workers_in_turns_are_deterministic_and_resume_exactly[ppo-single_learner_coarse-async",
    f"{ALGORITHMS}trainer.py::test_several_workers_in_turns_are_deterministic_and_resume_exactly[dqn-single_learner_coarse-sync",
    f"{ALGORITHMS}trainer.py::test_evaluation_does_not_disturb_recurrent_state[ppo",
    f"{ALGORITHMS}trainer.py::test_evaluation_does_not_disturb_the_training[dqn",
    f"{ALGORITHMS}trainer.py::test_environments_in_processes_of_their_own_change_nothing[dqn",
    f"{ALGORITHMS}trainer.py::test_keeping_the_best_changes_nothing_in_the_course_of_an_asynchronous_training[impala",
    f"{ALGORITHMS}trainer.py::test_items_are_what_lies_between_updates_and_change_nothing[61-3.0-sac",
    f"{ALGORITHMS}trainer.py::test_items_are_what_lies_between_updates_and_change_nothing[60-4.0-dqn",
    f"{ALGORITHMS}alternating_sampling.py::test_a_cut_run_equals_an_uncut_one[dqn-[{{'type': 'gru'",
    f"{ALGORITHMS}impala.py::test_a_cut_run_equals_an_uncut_one[impala-learner-elsewhere",
    f"{ALGORITHMS}impala.py::test_a_cut_run_equals_an_uncut_one[appo-learner-elsewhere",
    f"{ALGORITHMS}impala.py::test_v_trace_corrects_for_a_lag_that_is_known[2-1",
    f"{ALGORITHMS}impala.py::test_v_trace_corrects_for_a_lag_that_is_known[1-2",
    "tests/extras/test_multi_agent.py::test_two_workers_are_deterministic_and_resume_exactly[local",
    "tests/extras/test_maml.py::test_it_is_deterministic_and_a_cut_training_equals_the_uncut_one[reinforcement-where1",
    "tests/extras/test_es.py::test_it_is_deterministic_and_a_cut_training_equals_the_uncut_one[{}",
    # Agents for floats share their graph: fused, nested and with images, SAC stands for TD3 and DDPG.
    f"{AGENTS}continuous.py::test_fused_trainings_step_learn_and_resume[td3",
    f"{AGENTS}continuous.py::test_fused_trainings_step_learn_and_resume[ddpg]",
    f"{AGENTS}continuous.py::test_nested_spaces_and_images[TD3-jax",
    f"{AGENTS}continuous.py::test_nested_spaces_and_images[DDPG-jax",
    f"{AGENTS}continuous.py::test_noise_that_drifts_belongs_to_an_episode[TD3-jax",
    f"{AGENTS}continuous.py::test_boxes_with_a_fixed_and_with_open_sides_and_batches_of_one[TD3-jax",
    f"{AGENTS}continuous.py::test_boxes_with_a_fixed_and_with_open_sides_and_batches_of_one[DDPG-jax",
    f"{AGENTS}continuous.py::test_sac_learns_the_same_with_a_box_of_any_scale[jax",
    # What an agent does above the operators is the same on JAX and torch, where a test compares with numbers.
    f"{AGENTS}action_masks.py::test_forbidden_actions_are_never_taken[torch-PPO-True",
    f"{AGENTS}action_masks.py::test_forbidden_actions_are_never_taken[jax-DQN-True",
    f"{AGENTS}action_masks.py::test_forbidden_actions_are_never_taken[jax-PPO-False",
    f"{AGENTS}ppo.py::test_nested_observations_and_actions_with_images[jax",
    f"{AGENTS}dqn.py::test_any_observation_and_discrete_action_space[IntBox(() int32 in [0, 3))-jax",
    f"{AGENTS}dqn.py::test_any_observation_and_discrete_action_space[IntBox((2,) int32 in [-1..0, 2))-jax",
    f"{AGENTS}dqn.py::test_any_observation_and_discrete_action_space[BoolBox((2,) bool)-jax",
    f"{AGENTS}appo.py::test_recurrent_networks[jax",
    f"{AGENTS}recurrent_ppo.py::test_the_ratio_is_one_at_the_first_minibatch_of_every_update[jax-numpy",
    f"{AGENTS}recurrent_dqn.py::test_the_loss_is_that_of_a_loop_over_steps[0-network1-jax",
    f"{AGENTS}recurrent_dqn.py::test_padded_episodes_have_the_gradient_of_the_unpadded_ones[jax",
    f"{AGENTS}fused_dqn.py::test_one_step_transitions_need_no_window[jax",
    f"{AGENTS}fused_dqn.py::test_steps_are_counted_and_the_target_follows[jax",
    f"{AGENTS}action_spaces.py::test_actions_cover_every_space[A2C",
    f"{AGENTS}action_spaces.py::test_actions_cover_every_space[A3C",
    f"{AGENTS}action_spaces.py::test_actions_cover_every_space[APPO",
    f"{AGENTS}action_spaces.py::test_actions_cover_every_space[ApeX",
    f"{AGENTS}action_spaces.py::test_actions_cover_every_space[ES-onnx",
    "tests/envs/test_hashed_text.py::test_an_agent_learns_to_follow_text[jax",
    "tests/components/memories/test_replay.py::test_one_setting_switches_the_kind_in_an_agent[GraphPrioritizedReplay-jax-eager",
    "tests/zoo/test_zoo.py::test_every_kind_of_leaf_at_once_on_jax[ppo",
    "tests/backends/test_random.py::test_permutation[fast-tensorflow",
)
