"""Pictures of placements: processes, their fragments, and what crosses between them."""

from pathlib import Path

import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.placements import PLACEMENTS
from rlweave.algorithms.registry import get_algorithm


def drawn(name, form="mermaid", **sets):
    algorithm = get_algorithm(name)
    common = {"env": "CartPole-v1", "backend": "torch", "agent.acting_backend": "numpy"}
    return algorithm.draw_placement(resolve_config(algorithm.config_class, sets={**common, **sets}), form)


def test_environments_apart_have_a_box_and_two_borders():
    text = drawn("ppo", placement="environments_apart", num_envs=8)
    boxes = [line for line in text.splitlines() if "[" in line]
    assert len(boxes) == 2
    assert "environment process" in boxes[0]
    assert "8 of them" in boxes[0]
    assert "policy (numpy)" in boxes[1]
    assert "learner (torch)" in boxes[1]
    assert "observation, reward, flags<br/>25 bytes" in text  # 4 float32, a float64, a byte
    assert "action<br/>8 bytes" in text


def test_workers_of_this_process_are_one_box_with_the_border_that_leads_there():
    text = drawn("ppo", placement="single_learner_coarse")
    assert text.count("in this process") == 1
    assert text.count("[") == 2
    assert "weights" in text


def test_what_ranks_exchange_stands_in_their_box():
    text = drawn("a2c", **{"placement": "multi_learner", "placement.learners": 2})
    assert "gradients: sync, all-reduce" in text
    assert "2 of them" in text


def test_shards_and_the_driver_of_ape_x_are_joined():
    text = drawn("ape-x", engine="ray")
    assert {"worker", "shard", "driver"} <= set(text.replace('"', "<").replace("[", "<").split("<"))
    assert "priorities" in text


def test_rollouts_go_from_worker_to_learner_and_only_references_to_the_driver():
    text = drawn("impala", **{"engine": "ray", "placement.workers": 2, "learner": "actor"})
    boxes = {
        line.split("[")[1].split('"')[1].split("<")[0]: line.split("[")[0].strip()
        for line in text.splitlines()
        if "[" in line
    }
    arrows = [line.strip() for line in text.splitlines() if "SampleBatch" in line]
    (whole,) = [arrow for arrow in arrows if "reference" not in arrow]
    assert whole.startswith(boxes["worker"])
    assert whole.endswith(boxes["learner's actor"])
    assert " bytes" in whole
    (reference,) = [arrow for arrow in arrows if "reference" in arrow]
    assert reference.endswith(boxes["driver"])
    assert " bytes" not in reference


def test_shards_of_parameters_are_one_box():
    text = drawn("a3c", **{"placement": "parameter_server", "placement.shards": 2, "engine": "ray"})
    assert text.count("[") == 2
    (gradients,) = [line for line in text.splitlines() if "gradients" in line]
    assert " and " in gradients


@pytest.mark.parametrize("placement", [name for name in PLACEMENTS if name != "fused"])
def test_every_placement_has_a_picture(placement):
    algorithm = "a3c" if placement == "parameter_server" else "ppo"
    svg = drawn(algorithm, "svg", placement=placement)
    assert svg.startswith("<svg")
    assert svg.count('class="operator"') >= 1
    assert "at the sources" not in svg


@pytest.mark.parametrize(
    ("placement", "sets"),
    [
        ("environments_apart", {}),
        ("single_learner_coarse", {"placement.workers": 2, "engine": "ray"}),
        ("multi_learner", {"placement.learners": 2}),
    ],
)
def test_the_pictures_of_the_page_are_those_of_today(placement, sets):
    page = Path(__file__).parents[2] / "docs/plans"
    algorithm = get_algorithm("ppo")
    presets = algorithm.preset_of("CartPole-v1")
    own = {"env": "CartPole-v1", "backend": "torch", "placement": placement, **sets}
    config = resolve_config(algorithm.config_class, presets=presets, sets=own)
    assert (page / f"{placement}.svg").read_text() == algorithm.draw_placement(config)
