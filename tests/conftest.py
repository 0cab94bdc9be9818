"""Order of the tests, how many seeds the learning tests take, and that Ctrl-C can be tested."""

import signal


def pytest_configure():
    # what a shell starts in the background ignores Ctrl-C
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        "--learning-seeds",
        type=int,
        default=1,
        metavar="N",
        help="how many seeds each learning test runs: seeds 0 to N-1 (default: 1)",
    )


def pytest_generate_tests(metafunc):
    # A test marked `learning` with a parameter of this name runs once per seed.
    if "learning_seed" in metafunc.fixturenames:
        metafunc.parametrize("learning_seed", range(metafunc.config.getoption("--learning-seeds")))


def pytest_collection_modifyitems(items):
    """What takes long runs last, so that a fault shows early; and the longest of it first, so that no core waits."""

    def place(item):
        late = "slow" in item.keywords or "learning" in item.keywords
        long = item.get_closest_marker("long")
        return late, -long.kwargs["minutes"] if long else 0

    items.sort(key=place)
