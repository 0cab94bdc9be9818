"""The array of this backend: a tensor with the manners that graph functions count on.

A `tf.Tensor` refuses to add int32 to float32, cannot be indexed by arrays, and says `None` for the length of an open
axis. Inside graph functions each tensor is therefore held by a `TensorFlowArray`, whose operators promote as those of
the other backends do, and whose open axes are symbolic integers. What goes in and out of an executor are tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlweave.extensions.tensorflow_.framework import tf

Array = Any

#: 64-bit types as what they are here: the same everywhere, and what most kernels and all vocabularies of ours know.
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
_NUMBERS = (bool, int, float)
_DTYPES = {
    name: tf.as_dtype(name)
    for name in ("float32", "float16", "int8", "int16", "int32", "uint8", "uint16", "uint32", "bool")
}
_PROMOTED: dict[tuple[Any, Any], Any] = {}


class OpenAxisError(TypeError):
    """Python asked for the number behind a symbolic array: a size of an open axis, or a value.

    Args:
        what: What is not known.
        asked_for: "truth" or "number" of a value, or its "array"; "" for something else.
    """

    def __init__(self, what: str, asked_for: str = "") -> None:
        self.asked_for = asked_for
        super().__init__(
            f"{what} is not known while a graph function is traced; write ops.where or graph.cond in place of a Python "
            "branch on it"
        )


class TensorFlowArray:
    """A tensor with NumPy's manners. Arithmetic operators are those of `rlweave.ops` (installed by `elementwise`)."""

    __slots__ = ("__weakref__", "tensor")
    # NumPy arrays leave operators to this class
    __array_ufunc__ = None

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[Any, ...]:
        """Lengths of the axes: Python integers, and symbolic ones (int32 arrays without axes) of open axes."""
        static = self.tensor.shape.as_list()
        if None not in static:
            return tuple(static)
        sizes = tf.shape(self.tensor)
        return tuple([TensorFlowArray(sizes[i]) if n is None else n for i, n in enumerate(static)])

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.tensor.dtype.as_numpy_dtype)

    @property
    def ndim(self) -> int:
        return int(self.tensor.shape.rank)

    @property
    def size(self) -> Any:
        return (
            TensorFlowArray(tf.size(self.tensor))
            if None in self.tensor.shape.as_list()
            else int(np.prod(self.tensor.shape.as_list(), dtype=np.int64))
        )

    @property
    def T(self) -> TensorFlowArray:  # noqa: N802 - as everybody calls it
        return TensorFlowArray(tf.transpose(self.tensor))

    def numpy(self) -> np.ndarray:
        """A copy as NumPy."""
        if not hasattr(self.tensor, "numpy"):
            raise OpenAxisError("the value of an array", "array")
        return np.asarray(self.tensor.numpy())

    def copy(self) -> TensorFlowArray:
        """The same array: tensors never change."""
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, key: Any) -> TensorFlowArray:
        raise NotImplementedError  # as arithmetic it is installed, by `indexing`

    def __len__(self) -> int:
        static = self.tensor.shape.as_list()
        if not static:
            raise TypeError("an array without axes has no length")
        if static[0] is None:
            raise OpenAxisError("the length of an open axis")
        return int(static[0])

    def __iter__(self) -> Iterator[TensorFlowArray]:
        return iter([self[i] for i in range(len(self))])

    def _number(self, asked_for: str = "number") -> Any:
        value = self.tensor if hasattr(self.tensor, "numpy") else None
        if value is None:
            raise OpenAxisError("the value of an array", asked_for)
        return value.numpy()

    def __bool__(self) -> bool:
        return bool(self._number("truth"))

    def item(self) -> Any:
        """The number of an array of one entry."""
        return self._number().item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self._number().tolist()

    def __int__(self) -> int:
        return int(self._number())

    def __index__(self) -> int:
        return int(self._number().__index__())

    def __float__(self) -> float:
        return float(self._number())

    def __repr__(self) -> str:
        return f"TensorFlowArray({self.tensor!r})"

    def __hash__(self) -> int:
        return id(self)


def _tensor_of_array(value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    if dtype is not None and dtype != value.tensor.dtype:
        return NotImplemented
    return value.tensor


# Functions of TensorFlow take the arrays as they are.
tf.register_tensor_conversion_function(TensorFlowArray, _tensor_of_array)


def dtype_of(dtype: Any) -> Any:
    """The TensorFlow dtype that stands for the named one."""
    found = _DTYPES.get(dtype) if isinstance(dtype, str) else None
    if found is None:
        name = dtype.name if hasattr(dtype, "name") else np.dtype(dtype).name
        found = tf.as_dtype(_NARROW.get(name, name))
    return found


def narrowed(x: Any) -> Any:
    """A tensor of at most 32 bits."""
    narrow = _NARROW.get(x.dtype.name)
    return x if narrow is None else tf.cast(x, narrow)


def tensor_of(x: Any, dtype: Any = None) -> Any:
    """Anything as a tensor: of a dtype, or of its own (Python numbers: float32, int32 and bool)."""
    if isinstance(x, TensorFlowArray):
        result = x.tensor
    elif isinstance(x, tf.Tensor | tf.Variable):
        result = narrowed(tf.convert_to_tensor(x))
    elif isinstance(x, list | tuple) and _holds_tensor(x):
        result = tf.stack(common([tensor_of(item) for item in x]))
    else:
        array = np.asarray(x)
        wanted = _NARROW.get(array.dtype.name, array.dtype.name) if dtype is None else dtype.as_numpy_dtype
        # a constant is a copy: refilling the array changes nothing here
        return tf.constant(array.astype(wanted, copy=False))
    return result if dtype is None or result.dtype == dtype else cast(result, dtype)


def _holds_tensor(x: Sequence[Any]) -> bool:
    return any(
        isinstance(item, TensorFlowArray | tf.Tensor) or (isinstance(item, list | tuple) and _holds_tensor(item))
        for item in x
    )


def cast(x: Any, dtype: Any) -> Any:
    """A tensor in another dtype."""
    return tf.not_equal(x, tf.zeros((), x.dtype)) if dtype == tf.bool and x.dtype != tf.bool else tf.cast(x, dtype)


def real(x: Any) -> Any:
    """Anything as a float tensor."""
    x = tensor_of(x)
    return x if x.dtype.is_floating else tf.cast(x, tf.float32)


def promoted(first: Any, second: Any) -> Any:
    """The dtype in which two arrays meet."""
    if first == second:
        return first
    found = _PROMOTED.get((first, second))
    if found is None:
        if first.is_floating and not second.is_floating:
            found = first
        elif second.is_floating and not first.is_floating:
            found = second
        else:
            found = dtype_of(np.promote_types(first.as_numpy_dtype, second.as_numpy_dtype))
        _PROMOTED[first, second] = found
    return found


def common(tensors: Sequence[Any]) -> list[Any]:
    """Tensors of one dtype."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = promoted(dtype, tensor.dtype)
    return [tensor if tensor.dtype == dtype else tf.cast(tensor, dtype) for tensor in tensors]


def operands(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Two tensors of one dtype; a Python number takes that of the other operand unless that would lose it."""
    if type(x2) in _NUMBERS and type(x1) not in _NUMBERS:
        first = tensor_of(x1)
        dtype = _beside_number(first.dtype, x2)
        return first if first.dtype == dtype else tf.cast(first, dtype), tf.constant(x2, dtype)
    if type(x1) in _NUMBERS and type(x2) not in _NUMBERS:
        second = tensor_of(x2)
        dtype = _beside_number(second.dtype, x1)
        return tf.constant(x1, dtype), second if second.dtype == dtype else tf.cast(second, dtype)
    first, second = tensor_of(x1), tensor_of(x2)
    if first.dtype != second.dtype:
        dtype = promoted(first.dtype, second.dtype)
        return tf.cast(first, dtype), tf.cast(second, dtype)
    return first, second


def _beside_number(dtype: Any, number: Any) -> Any:
    if type(number) is float:
        return dtype if dtype.is_floating else tf.float32
    return tf.int32 if type(number) is int and dtype == tf.bool else dtype


def shape_tensor(shape: Any) -> Any:
    """A shape for functions of TensorFlow: a tuple of integers, or an int32 tensor where one of them is symbolic."""
    if isinstance(shape, TensorFlowArray):
        return tf.reshape(shape.tensor, (-1,))
    if isinstance(shape, int | np.integer):
        return (int(shape),)
    if any(isinstance(n, TensorFlowArray) for n in shape):
        return tf.stack([n.tensor if isinstance(n, TensorFlowArray) else tf.constant(n, tf.int32) for n in shape])
    return tuple([int(n) for n in shape])
