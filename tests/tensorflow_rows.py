"""When the rows for TensorFlow of tests over all backends run; `conftest.py` marks them.

TensorFlow traces a graph in the time in which others run a test, and what rlweave does above its operators is the same
on all backends.
"""

#: Fast tests: operators and laws show early what is broken. A test elsewhere is marked `early_on_tensorflow`.
EARLY = (
    *("tests/backends/", "tests/extensions/test_onnx", "tests/extensions/test_tensorflow", "tests/ops/"),
    *("tests/graph/test_laws", "tests/test_packaging"),
)
#: Slow tests: graphs, optimizers, memories, and agents of each kind, from an update to a training that is cut and one
#: that learns. All other rows are thorough.
LATE = (
    "tests/graph/",
    "tests/extensions/",
    "tests/testing/test_parity.py",
    "tests/components/test_optimizers.py",
    "tests/components/memories/test_replay.py",
    "tests/components/memories/test_graph_memories.py::test_a_concrete_function_does_not_call_the_host",
    "tests/agents/test_ppo.py::test_nested_observations_and_actions_with_images",
    "tests/agents/test_ppo.py::test_gradients_computed_and_applied_are_one_step_of_the_optimizer",
    "tests/agents/test_dqn.py::test_a_batch_that_is_drawn_staged_and_learned_at_once_is_an_update",
    "tests/agents/test_dqn.py::test_batches_of_changing_size_compile_nothing_new_and_leave_no_memory_behind",
    "tests/agents/test_continuous.py::test_updates_are_those_of_a_program_written_by_hand",
    "tests/agents/test_fused_ppo.py::test_backends_agree[False",
    "tests/agents/test_fused_ppo.py::test_one_concrete_function_without_the_host",
    "tests/algorithms/test_trainer.py::test_a_cut_run_equals_an_uncut_one[dqn-tensorflow-numpy",
    "tests/algorithms/test_learning.py::test_learns",
)
