from collections.abc import Callable
from typing import Any, Literal, TypeVar

import pytest

from rlweave.flow import Batch, SampleBatch, Signal
from rlweave.flow.item_types import fits, one_of, signature_of, type_name
from rlweave.flow.protocols import BatchType

Item = TypeVar("Item")


def negate(x: int) -> int | Literal[Signal.ABSORBED]:
    return -x


def unannotated(x):  # type: ignore[no-untyped-def]
    return x


class PassOn:
    def __call__(self, batch: BatchType) -> BatchType:
        return batch


class Maker:
    def sample(self) -> SampleBatch:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("produced", "expected", "fit"),
    [
        (int, int, True),
        (bool, int, True),
        (int, float, True),
        (float, int, False),
        (int, str, False),
        (Any, str, True),
        (str, Any, True),
        (int | None, int, False),
        (int, int | None, True),
        (int | str, str | int | None, True),
        (list[int], list, True),
        (list, list[int], True),
        (list[int], list[str], False),
        (list[SampleBatch], list[Batch], True),
        (dict[str, int], dict[str, str], False),
        (SampleBatch, Batch, True),
        (int, Batch, False),
        (SampleBatch, BatchType, True),
        (list[SampleBatch], BatchType, False),
        (int, Item, True),
        (Literal["a"], Literal["b"], False),
    ],
)
def test_fits(produced: Any, expected: Any, fit: bool) -> None:
    assert fits(produced, expected) is fit


@pytest.mark.parametrize(
    ("function", "takes", "gives"),
    [
        (negate, int, int),
        (unannotated, Any, Any),
        (len, Any, Any),
        (Maker().sample, Any, SampleBatch),
        (Maker, Any, Maker),
        (PassOn(), BatchType, BatchType),
    ],
)
def test_signatures_are_read_from_annotations(function: Callable[..., Any], takes: Any, gives: Any) -> None:
    assert signature_of(function) == (takes, gives)


def test_a_type_variable_passes_the_type_on() -> None:
    assert signature_of(PassOn()).produced(SampleBatch) is SampleBatch
    assert signature_of(negate).produced(bool) is int


@pytest.mark.parametrize(
    ("item_type", "name"),
    [
        (SampleBatch, "SampleBatch"),
        (list[SampleBatch], "list[SampleBatch]"),
        (dict[str, list[int]], "dict[str, list[int]]"),
        (int | None, "int | None"),
        (Any, "Any"),
        (BatchType, "Batch"),
    ],
)
def test_names(item_type: Any, name: str) -> None:
    assert type_name(item_type) == name


def test_unions() -> None:
    assert one_of([int, int]) is int
    assert one_of([int, str]) == int | str
    assert one_of([int, Any]) is Any
