"""Reads go on while another thread writes: each of them sees all of one state."""

import sys
import threading

import numpy as np
import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from tests.graph.toys import BACKENDS, SCALAR, built


class _Counters(Component):
    """Many arrays that are all moved together, so that a torn read shows."""

    def __init__(self):
        super().__init__("counters")

    def create_variables(self):
        self.arrays = [self.variable(f"array-{i}", (48, 48), 0.0) for i in range(12)]

    @graph_fn
    def read(self, x):
        return ops.stack([ops.mean(array.value) * x for array in self.arrays])

    @graph_fn
    def raw(self):
        return tuple([array.value for array in self.arrays])

    @graph_fn
    def _move(self, x):
        for array in self.arrays:
            array.assign(array.value + x)

    @api
    def update(self, x):
        self._move(x)
        return x


@pytest.mark.parametrize("backend", BACKENDS)
def test_reads_go_on_while_another_thread_updates(backend):
    executor = built(_Counters(), {"x": SCALAR}, backend)
    one, updates = np.float32(1.0), 40 if backend == "tensorflow" else 200
    executor.update(one)
    executor.read(one)
    done, failures = threading.Event(), []

    def means(values):
        return {float(np.mean(np.asarray(value))) for value in values}

    reads = (
        *[lambda: means(executor.read(one))] * 2,
        lambda: means(executor.read(one, as_numpy=False)),
        lambda: means(executor.raw()),
        lambda: means(executor.get_weights().values()),
        lambda: means(value for path, value in executor.state_dict().items() if "array" in path),
    )

    def go_on(read):
        last, count = 0.0, 0
        try:
            while not done.is_set() or not count:
                found = read()
                assert len(found) == 1, f"parts of several observations: {found}"
                assert last <= max(found) <= updates + 1
                last, count = max(found), count + 1
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=go_on, args=(read,)) for read in reads]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns between any two lines
    for reader in readers:
        reader.start()
    try:
        for _ in range(updates):
            executor.update(one)
    finally:
        done.set()
        sys.setswitchinterval(interval)
        for reader in readers:
            reader.join()
    assert not failures, failures
    assert means(executor.read(one)) == {updates + 1.0}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_write_may_come_between_any_two_lines_of_a_read(backend):
    executor = built(_Counters(), {"x": SCALAR}, backend)
    one = np.float32(1.0)
    executor.update(one)
    executor.read(one)
    updates, lines = 1, 0

    def read_with_an_update_at(line):
        """A read, during which an update happens before its n-th line; how many lines it has."""
        seen = 0

        def tracer(frame, event, _):
            nonlocal seen
            if event == "line":
                seen += 1
                if seen == line:
                    sys.settrace(None)
                    executor.update(one)
            return tracer if frame.f_code.co_filename.startswith("<") else None

        sys.settrace(tracer)
        try:
            found = executor.read(one)
        finally:
            sys.settrace(None)
        assert len(set(found.tolist())) == 1
        return float(found[0]), seen

    before, lines = read_with_an_update_at(0)
    assert (before, lines > 2) == (1.0, True)
    for line in range(1, lines + 1):
        found, _ = read_with_an_update_at(line)
        assert found in (updates, updates + 1)
        updates += 1
