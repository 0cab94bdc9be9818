"""What comes from the object store belongs to who receives it: nothing in it is read-only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from rlweave.flow import Gradients, PolicyBatches, SampleBatch
from rlweave.flow.nesting import PlanItem
from rlweave.flow.ray_host import owned


def view() -> np.ndarray:
    array = np.arange(3.0)
    array.flags.writeable = False
    return array


@dataclass(frozen=True)
class Frozen:
    inner: Any
    others: list[Any] = field(default_factory=list)


class Slotted:
    __slots__ = "only"

    def __init__(self, only: Any) -> None:
        self.only = only


class WithData:
    def __init__(self, data: Any) -> None:
        self.data = data


ITEMS: dict[str, tuple[Callable[[], Any], Callable[[Any], np.ndarray]]] = {
    "batch": (lambda: SampleBatch({"a": view()}), lambda item: item["a"]),
    "batches": (lambda: PolicyBatches({"p": SampleBatch({"a": view()})}, 3), lambda item: item["p"]["a"]),
    "plan item": (lambda: PlanItem(3, {}, {"s": {"w": view()}}), lambda item: item.state["s"]["w"]),
    "a report": (lambda: PlanItem(3, {"a": view()}), lambda item: item.report["a"]),
    "gradients": (lambda: Gradients({"w": view()}, 3), lambda item: item.values["w"]),
    "frozen": (lambda: Frozen(view()), lambda item: item.inner),
    "nested": (lambda: Frozen(None, [Slotted(Frozen((view(),)))]), lambda item: item.others[0].only.inner[0]),
    "data": (lambda: WithData({"a": view()}), lambda item: item.data["a"]),
}


@pytest.mark.parametrize("name", ITEMS)
def test_every_kind_of_item_owns_its_arrays(name: str) -> None:
    make, array = ITEMS[name]
    ((item, *rest),) = owned([(make(), 3, 0, ())])
    assert type(item) is type(make())
    assert rest == [3, 0, ()]
    assert array(item).flags.writeable
    assert array(item).tolist() == [0.0, 1.0, 2.0]


def test_objects_may_refer_to_each_other() -> None:
    one, other = Slotted(None), Slotted(None)
    one.only, other.only = [other, view()], [one]
    assert owned(one) is one
    assert one.only[1].flags.writeable
    assert one.only[0].only[0] is one


class Keeps:
    """Keeps what it gets."""

    def load_state_dict(self, state: Any) -> None:
        self.total = state["total"]

    def add(self) -> np.ndarray:
        self.total += 1.0
        return self.total


def test_a_state_that_an_object_in_an_actor_keeps_is_its_own() -> None:
    cloudpickle = pytest.importorskip("ray").cloudpickle
    from rlweave.flow.ray_host import RayHost

    host = RayHost(cloudpickle.dumps(Keeps))
    given = view()
    assert host.invoke("load_state_dict", {"total": given}) is None
    assert host.invoke("add").tolist() == [1.0, 2.0, 3.0]
    assert given.tolist() == [0.0, 1.0, 2.0]
