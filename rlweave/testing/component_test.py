"""`ComponentTest`: builds any component alone and calls any of its API methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave.errors import BuildError, ExecutionError
from rlweave.graph import Component, build
from rlweave.graph.component import api_methods
from rlweave.spaces import Space


class ComponentTest:
    """A component built alone (Listing 1 of the RLgraph paper).

    API methods for which no input spaces are given are left out; calling one of them says what is missing.

    Args:
        component: The component.
        input_spaces: Space of each API input, by parameter name or "method.parameter".
        backend: "numpy", "torch", "jax" or "tensorflow".
        options: Further arguments of `build` (seed, mode, rng, static, ...).

    Example:
        >>> from rlweave.components import Dense
        >>> from rlweave.spaces import FloatBox
        >>> test = ComponentTest(Dense(2), {"inputs": FloatBox(shape=(3,), add_batch_rank=True)})
        >>> test.test("call", np.zeros((5, 3), np.float32)).shape
        (5, 2)
    """

    def __init__(
        self,
        component: Component,
        input_spaces: Mapping[str, Space] | None = None,
        backend: str = "numpy",
        **options: Any,
    ) -> None:
        spaces = dict(input_spaces or {})
        declared = api_methods(type(component))
        self.missing: dict[str, list[str]] = {}
        methods = []
        for name, method in declared.items():
            if not component.offers(name):
                continue
            missing = [
                parameter
                for parameter in method.parameters
                if parameter not in method.static
                and parameter not in spaces
                and f"{name}.{parameter}" not in spaces
                and method.signature.parameters[parameter].default is method.signature.empty
            ]
            if missing:
                self.missing[name] = missing
            else:
                methods.append(name)
        if not methods and self.missing and "methods" not in options:
            raise BuildError(
                "no API method has spaces for all of its inputs",
                where=f"ComponentTest of {component.path}",
                received=f"spaces for {sorted(spaces)}; missing: "
                + "; ".join(f"{', '.join(names)} of {name}" for name, names in self.missing.items()),
                fix="add the missing spaces to input_spaces: {"
                + ", ".join(f'"{name}": <space>' for name in next(iter(self.missing.values())))
                + "}",
            )
        methods = options.pop("methods", methods)
        self.input_spaces = spaces
        self.component = component
        self.executor = build(component, spaces, backend=backend, methods=methods, **options)

    def test(
        self, method: Any, *args: Any, expected: Any = None, rtol: float = 1e-5, atol: float = 1e-6, **kwargs: Any
    ) -> Any:
        """Calls an API method with NumPy inputs.

        Args:
            method: Its name, or the method itself (`policy.get_action`).
            args: Inputs.
            expected: When given, the result has to be close to it (nested like it).
            rtol: Relative tolerance.
            atol: Absolute tolerance.
            kwargs: Inputs by name, and static arguments.

        Returns:
            The result as NumPy.
        """
        name = method if isinstance(method, str) else method.declared.name
        if name in self.missing:
            raise ExecutionError(
                f"API method {name!r} was not built",
                where=self.component.path,
                received=f"no spaces for {self.missing[name]}",
                fix="add them to input_spaces",
            )
        result = getattr(self.executor, name)(*args, **kwargs)
        if expected is not None:
            assert_close(result, expected, rtol, atol)
        return result

    def sample(self, parameter: str, size: Any = None, seed: int = 0) -> Any:
        """A sample of the space of an input."""
        space: Space = self.input_spaces[parameter]
        return space.sample(size, rng=np.random.default_rng(seed))

    def variables(self) -> dict[str, np.ndarray]:
        """Copies of all variables by path relative to the component."""
        prefix = self.component.path + "/"
        return {path.removeprefix(prefix): value for path, value in self.executor.get_weights().items()}


def assert_close(result: Any, expected: Any, rtol: float, atol: float, path: str = "") -> None:
    """Asserts that nested results are close, naming the leaf that is not."""
    if isinstance(expected, dict):
        assert isinstance(result, dict), f"{path}: {result} is no dict"
        assert sorted(result) == sorted(expected), f"{path}: keys {sorted(result)} / {sorted(expected)}"
        for key in expected:
            assert_close(result[key], expected[key], rtol, atol, f"{path}/{key}")
    elif isinstance(expected, tuple):
        assert isinstance(result, tuple), f"{path}: {result} is no tuple"
        assert len(result) == len(expected), f"{path}: {result} / {expected}"
        for index, item in enumerate(expected):
            assert_close(result[index], item, rtol, atol, f"{path}/{index}")
    elif expected is None:
        assert result is None, f"{path}: {result} / None"
    else:
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol, err_msg=path)
