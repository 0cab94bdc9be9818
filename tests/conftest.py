"""Order of the tests, how many seeds the learning tests take, and that Ctrl-C can be tested."""

import gc
import importlib.util
import os
import signal
import tempfile

import pytest

from tests import tensorflow_rows
from tests.repetitions import REPETITIONS

# JAX makes as many devices of the CPU as it is told before it starts; graphs stay on the first unless they are placed.
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4".strip()


def pytest_configure(config):
    gc.disable()  # until all tests are imported: nothing of frameworks and tests can be freed
    # what a shell starts in the background ignores Ctrl-C
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    runs_tests = hasattr(config, "workerinput") or config.getoption("dist", "no") == "no"
    if runs_tests and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        _compile_equal_programs_once(config)


def _compile_equal_programs_once(config):
    """Has JAX keep what it compiled, for tests that build equal agents, which it would compile most of their time.

    Each process that runs tests has a directory of its own, since JAX writes there without a lock, and a new one, so
    that nothing of an earlier run, another version or another machine is found. A process that a test begins shares it.
    """
    directory = tempfile.TemporaryDirectory(prefix="rlweave-tests-jax-")
    config.add_cleanup(directory.cleanup)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = directory.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def pytest_addoption(parser):
    parser.addoption(
        "--learning-seeds",
        type=int,
        default=1,
        metavar="N",
        help="how many seeds each learning test runs: seeds 0 to N-1 (default: 1)",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="also what takes too long for every change (some two hours on one core)",
    )


def pytest_generate_tests(metafunc):
    # A test marked `learning` with a parameter of this name runs once per seed.
    if "learning_seed" in metafunc.fixturenames:
        metafunc.parametrize("learning_seed", range(metafunc.config.getoption("--learning-seeds")))


def pytest_collection_modifyitems(config, items):
    """What takes long runs last, so that a fault shows early; and the longest of it first, so that no core waits."""
    for item in items:
        if hasattr(item, "callspec") and "tensorflow" in map(str, item.callspec.params.values()):
            if importlib.util.find_spec("tensorflow") is None and "test_packaging" not in item.nodeid:
                item.add_marker(pytest.mark.skip(reason="tensorflow is not installed"))
            early = item.nodeid.startswith(tensorflow_rows.EARLY) or item.get_closest_marker("early_on_tensorflow")
            if not early:
                late = item.nodeid.startswith(tensorflow_rows.LATE)
                item.add_marker(pytest.mark.slow if late else pytest.mark.thorough)
        if item.nodeid.startswith(REPETITIONS):
            item.add_marker(pytest.mark.thorough)
    if not config.getoption("--thorough"):
        config.hook.pytest_deselected(items=[item for item in items if "thorough" in item.keywords])
        items[:] = [item for item in items if "thorough" not in item.keywords]

    def place(item):
        late = "slow" in item.keywords or "learning" in item.keywords
        long = item.get_closest_marker("long")
        return late, -long.kwargs["minutes"] if long else 0

    items.sort(key=place)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def what_was_there_before_is_not_searched_for_garbage():
    """Frameworks and thousands of tests stay: a collection that goes through them takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def interrupts_given_back():
    """No test leaves the handler of a plan behind: it would take the Ctrl-C that a later test presses."""
    yield
    if type(signal.getsignal(signal.SIGINT)).__name__ == "PlanInterrupt":
        gc.collect()  # an iterator over reports that was left halfway may be part of a cycle
        assert type(signal.getsignal(signal.SIGINT)).__name__ != "PlanInterrupt", "a run was left halfway, and is kept"


@pytest.fixture(scope="session")
def ray_engine():
    """One small Ray cluster on this machine for all tests of a process.

    A training whose settings say `engine=ray` uses the cluster that is there: a test that asks for this one spares
    the start and the end of another.
    """
    pytest.importorskip("ray")
    from rlweave.flow.ray_engine import RayEngine

    with pytest.MonkeyPatch.context() as patch:
        # several actors at once would write there
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        engine = RayEngine(num_cpus=2, object_store_memory=80 * 2**20)
    with engine:
        yield engine
