"""Order of the tests, and how many seeds the learning tests take."""


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
    """What takes long runs last, so that a fault shows early."""
    items.sort(key=lambda item: ("slow" in item.keywords) + 2 * ("learning" in item.keywords))
