"""Acting and the DQN update through torch.compile(fullgraph=True): no graph break, the same numbers."""

import numpy as np
import pytest

from rlweave.agents.dqn import DQN
from rlweave.spaces import FloatBox, IntBox
from tests.agents.rollouts import SMALL, transitions

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.mark.thorough  # graph/test_torch_compile.py has the same of a smaller graph
@pytest.mark.long(minutes=2)
def test_acting_and_updating_compiled_as_one_graph_each():
    torch = pytest.importorskip("torch")
    config = {"network": SMALL, "memory_capacity": 64, "learning_starts": 8, "batch_size": 8, "epsilon": 0.3}
    agents = []
    for compiled in (False, True):
        agent = DQN(FloatBox(shape=(3,)), IntBox(3), config, backend="torch", seed=1)
        agents.append(agent.build({"rng": "portable", "torch_compile": compiled}))
    plain, compiled_agent = agents
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    observations = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    for agent in agents:
        agent.insert(transitions(agent, 32))
        agent.count_steps(32)
    for _ in range(3):
        np.testing.assert_array_equal(plain.get_actions(observations), compiled_agent.get_actions(observations))
        np.testing.assert_array_equal(
            plain.get_actions(observations, explore=False), compiled_agent.get_actions(observations, explore=False)
        )
        assert plain.update()["loss"] == pytest.approx(compiled_agent.update()["loss"], rel=1e-4)
    assert not torch._dynamo.utils.counters["graph_break"]
    for path, value in plain.executor.get_weights("dqn/policy").items():
        np.testing.assert_allclose(compiled_agent.executor.get_weights()[path], value, atol=1e-5, err_msg=path)
