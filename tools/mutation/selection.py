"""Which tests belong to a file: those of the same name, and those named here."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: What is mutated: all of the components, and the graphs of the agents.
PACKAGES = {"rlweave/components": False, "rlweave/agents": True}
CHECK = "rlweave/testing/checks/checking.py"
#: Words in the name of a test that runs on a backend which compiles too long for hundreds of runs.
SLOW_BACKENDS = ("jax", "tensorflow", "onnx")
#: Tests that take more seconds than this are left out.
SLOWEST = 2.0
#: Seconds that the tests of one file may take together, and the calls of `check`: the slowest are left out.
MOST = 6.0

_COMPONENTS, _AGENTS = "rlweave/components/", "rlweave/agents/"
_CONTINUOUS = ("agents/test_continuous.py", "agents/test_action_spaces.py")
#: Components whose tests compile something; they may take ten times as long.
PATIENT = _COMPONENTS + "native/"
#: Tests of every component.
OF_ALL_COMPONENTS = (
    "components/test_defaults.py",
    "components/test_constant_results.py",
    "components/test_ranges.py",
    "components/test_trainable.py",
)
#: Further tests of a file, or those of a file that has none of its name.
ALSO: dict[str, tuple[str, ...]] = {
    _COMPONENTS + "action_boundary.py": ("agents/test_action_spaces.py", "components/test_policies.py"),
    _COMPONENTS + "action_leaves.py": (
        *("components/test_action_distribution.py", "components/test_q_policies.py"),
        *("components/test_policies.py", "components/test_exploration.py", "agents/test_action_spaces.py"),
    ),
    _COMPONENTS + "action_distribution.py": ("components/test_action_density.py", "components/test_policies.py"),
    _COMPONENTS + "action_masks.py": ("components/test_policies.py", "agents/test_action_masks.py"),
    _COMPONENTS + "critics.py": _CONTINUOUS,
    _COMPONENTS + "deterministic_policy.py": ("components/test_policies.py", *_CONTINUOUS),
    _COMPONENTS + "distributions.py": ("components/test_action_distribution.py", "components/test_q_policies.py"),
    _COMPONENTS + "encoders.py": (
        *("components/test_network.py", "components/test_text.py", "components/test_recurrent_networks.py"),
        "agents/test_spaces.py",
    ),
    _COMPONENTS + "leaf_encoding.py": (
        "components/test_encoders.py",
        "components/test_text.py",
        "agents/test_spaces.py",
    ),
    _COMPONENTS + "initializers.py": ("components/test_layers.py",),
    _COMPONENTS + "memories/graph_n_step.py": (
        *("components/memories/test_n_step.py", "components/memories/test_graph_memories.py"),
        "agents/test_fused_dqn.py",
    ),
    _COMPONENTS + "memories/graph_replay.py": (
        *("components/memories/test_graph_memories.py", "components/memories/test_replay.py"),
        "components/memories/test_prioritized.py",
    ),
    _COMPONENTS + "memories/graph_ring.py": (
        *("components/memories/test_graph_memories.py", "components/memories/test_replay.py"),
        "components/memories/test_prioritized.py",
    ),
    _COMPONENTS + "memories/prioritized.py": ("components/memories/test_pictures.py",),
    _COMPONENTS + "memories/replay.py": ("components/memories/test_pictures.py",),
    _COMPONENTS + "memories/sum_tree.py": (
        *("components/memories/test_prioritized.py", "components/memories/test_graph_memories.py"),
    ),
    _COMPONENTS + "native/native_module.py": (
        *("components/native/test_torch_module.py", "components/native/test_ranks_and_modes.py"),
    ),
    _COMPONENTS + "native/torch_module.py": ("components/native/test_ranks_and_modes.py",),
    _COMPONENTS + "native/flax_module.py": ("components/native/test_ranks_and_modes.py",),
    _COMPONENTS + "native/keras_module.py": ("components/native/test_ranks_and_modes.py",),
    _COMPONENTS + "network.py": ("components/test_encoders.py", "components/test_recurrent_networks.py"),
    _COMPONENTS + "policies.py": ("components/test_recurrent_networks.py", "components/test_action_masks.py"),
    _COMPONENTS + "q_policies.py": ("components/test_recurrent_networks.py",),
    _COMPONENTS + "recurrent.py": ("components/test_recurrent_networks.py",),
    _COMPONENTS + "reward_normalization.py": ("agents/test_ppo.py", "components/test_normalization.py"),
    _COMPONENTS + "scopes.py": ("components/test_network.py", "components/test_encoders.py"),
    _COMPONENTS + "temperature.py": ("agents/test_continuous.py",),
    _COMPONENTS + "text.py": ("components/test_encoders.py",),
    _COMPONENTS + "value_functions.py": ("components/test_policies.py", "components/test_recurrent_networks.py"),
    _AGENTS + "actor_critic_graph.py": (
        *("agents/test_ppo.py", "agents/test_a2c.py", "agents/test_impala.py", "agents/test_recurrent_ppo.py"),
        *("agents/test_fused_ppo.py", "agents/test_action_masks.py"),
    ),
    _AGENTS + "appo.py": ("agents/test_replay_agent.py",),
    _AGENTS + "dqn.py": (
        *("agents/test_recurrent_dqn.py", "agents/test_fused_dqn.py", "agents/test_action_masks.py"),
        "agents/test_replay_agent.py",
    ),
    _AGENTS + "fused_dqn.py": ("agents/test_replay_agent.py",),
    _AGENTS + "epochs.py": ("agents/test_ppo.py", "agents/test_pqn.py", "agents/test_ranks.py"),
    _AGENTS + "rollout_agent.py": ("agents/test_ppo.py", "agents/test_a2c.py", "agents/test_pqn.py"),
    _AGENTS + "fused_on_policy.py": ("agents/test_actor_critic_graph.py", "agents/test_fused_ppo.py"),
    _AGENTS + "fused_replay.py": ("agents/test_fused_dqn.py", "agents/test_continuous.py"),
    _AGENTS + "minibatches.py": ("agents/test_ppo.py", "agents/test_recurrent_ppo.py", "agents/test_appo.py"),
    _AGENTS + "ppo.py": ("agents/test_recurrent_ppo.py", "agents/test_fused_ppo.py", "agents/test_a2c.py"),
    _AGENTS + "replay_agent.py": ("agents/test_dqn.py", "agents/test_fused_dqn.py", "agents/test_continuous.py"),
    _AGENTS + "sac.py": _CONTINUOUS,
    _AGENTS + "td3.py": _CONTINUOUS,
}


def files() -> dict[str, bool]:
    """The files that are mutated, and whether only their graphs are."""
    return {
        str(path.relative_to(ROOT)): graphs
        for package, graphs in PACKAGES.items()
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def tests_of(file: str) -> list[str]:
    """Test files of a source file, that of its name first; of one that has none, all of its directory."""
    path = Path(file.removeprefix("rlweave/"))
    own = f"tests/{path.parent}/test_{path.name}"
    of_all = OF_ALL_COMPONENTS if file.startswith(_COMPONENTS) else ()
    found = [own, *(f"tests/{name}" for name in (*ALSO.get(file, ()), *of_all))]
    beside = sorted(str(test.relative_to(ROOT)) for test in (ROOT / "tests" / path.parent).glob("test_*.py"))
    return [name for name in dict.fromkeys(found) if (ROOT / name).exists()] or beside


def fingerprint(files: list[str]) -> str:
    """Changes with the files."""
    texts = [(ROOT / name).read_bytes() for name in files]
    return hashlib.sha1(b"\0".join(texts), usedforsecurity=False).hexdigest()[:10]


def quickest(tests: dict[str, Any], file: str) -> dict[str, Any]:
    """The tests that together take no more than they may, the quickest first."""
    longer = 10.0 if file.startswith(PATIENT) else 1.0
    chosen: dict[str, Any] = {}
    totals: Counter[str] = Counter()
    for name, test in sorted(tests.items(), key=lambda item: item[1]["seconds"]):
        of = name.split("::")[0] if "::" in name else ""
        totals[of] += test["seconds"]
        if test["seconds"] <= SLOWEST * longer and totals[of] <= MOST * longer:
            chosen[name] = test
    return chosen


def is_quick(name: str) -> bool:
    """A test of this id runs on no backend that compiles long."""
    return not any(backend in name.split("::", 1)[-1] for backend in SLOW_BACKENDS)
