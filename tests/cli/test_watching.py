"""`rlweave evaluate --video` and `--render`."""

import importlib.util

import pytest

from tests.algorithms.python_envs import Drawn
from tests.cli.test_callbacks import ES

pytest.importorskip("imageio_ffmpeg")


@pytest.fixture
def drawn_run(rlweave):
    words = [word.replace(":Walk", ":Drawn") for word in ES]
    assert rlweave(*words, "--steps", "40").code == 0


def pictures(path):
    import imageio.v3

    return imageio.v3.imread(path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the reader of MP4 files, in here
@pytest.mark.usefixtures("drawn_run")
@pytest.mark.parametrize("name", ["episode.gif", "there/episode.mp4"])
def test_an_episode_becomes_a_video(rlweave, tmp_path, name):
    result = rlweave("evaluate", "run", "--video", name)
    assert result.code == 0, result.err
    assert "over 1 episode" in result.out
    assert name in result.out
    frames = pictures(tmp_path / name)
    # five steps and the first observation; a new episode begins after the last
    assert len(frames) >= 6
    assert frames.shape[1] in (33, 34)
    brightness = frames[:6].mean(axis=(1, 2, 3))
    assert (brightness[1:] - brightness[:-1] > 20).all()


@pytest.mark.usefixtures("drawn_run")
def test_an_episode_is_shown(rlweave):
    before = Drawn.shown
    result = rlweave("evaluate", "run", "--render", "--episodes", "2")
    assert result.code == 0, result.err
    assert Drawn.shown == before + 10


@pytest.mark.usefixtures("drawn_run")
def test_what_cannot_be_recorded_is_said_in_a_line(rlweave, monkeypatch):
    result = rlweave("evaluate", "run", "--video", "x.avi")
    assert result.code == 2
    assert "a video is a GIF or an MP4" in result.err
    assert rlweave("evaluate", "run", "--video", "x.gif", "--render").code == 2
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "imageio_ffmpeg" else find(name))
    result = rlweave("evaluate", "run", "--video", "x.mp4")
    assert result.code == 2
    assert "[video]" in result.err


def test_an_environment_without_pictures_is_named(rlweave):
    assert rlweave(*ES, "--steps", "40").code == 0
    result = rlweave("evaluate", "run", "--video", "x.gif")
    assert result.code == 1
    assert "has no render mode 'rgb_array'" in result.err
