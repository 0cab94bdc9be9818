"""Which variables are trained: those of layers, and never what a component remembers."""

import pytest

from rlweave.components import PrioritizedReplay, ReplayMemory
from rlweave.testing.component_descriptors import DESCRIPTORS
from rlweave.testing.parity import build_described
from tests.components.memories.test_pictures import IMAGE, STACK, executor_of

REMEMBER = (
    *("replay", "prioritized-replay", "graph-replay", "graph-prioritized-replay", "fifo-queue", "ring-buffer"),
    *("n-step-window", "running-normalization", "reward-normalization"),
)


@pytest.mark.parametrize("name", REMEMBER)
def test_what_is_remembered_is_not_trained(name):
    cells = build_described(DESCRIPTORS[name], "numpy").store.cells
    assert cells
    assert not {path for path, cell in cells.items() if cell.trainable}


@pytest.mark.parametrize("memory", [ReplayMemory, PrioritizedReplay])
@pytest.mark.parametrize("observation", [STACK, IMAGE], ids=["stack", "image"])
def test_pictures_are_not_trained(memory, observation):
    cells = executor_of(memory(600), observation).store.cells
    assert any("pictures" in path for path in cells)
    assert not {path for path, cell in cells.items() if cell.trainable}


@pytest.mark.parametrize("name", ["dense", "conv2d", "lstm", "gru", "adam"])
def test_layers_are_trained_and_what_their_optimizers_keep_is_not(name):
    cells = build_described(DESCRIPTORS[name], "numpy").store.cells
    kept = {path for path in cells if "optimizer" in path or "/adam/" in path}
    assert {path for path, cell in cells.items() if not cell.trainable and "random" not in path} <= kept
    assert any(cell.trainable for cell in cells.values())
    assert bool(kept) == (name == "adam")
