"""`FlaxModule`: an `nnx.Module` as a component."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.components.native.native_module import NativeModule
from rlweave.graph import register


@register("flax_module")
class FlaxModule(NativeModule):
    """A `flax.nnx.Module` as a layer, on the jax backend.

    Its `nnx.Param`s become variables named by their path in the module (`layer.kernel`, below the component's path)
    with the values that they have now; other arrays (batch statistics) become variables that are not trained. The
    module given is copied and stays as it is.

    Args:
        module: The module; its `__call__` takes the inputs of `call`, with one batch axis.
        encodes_observations: See `NativeModule`.
        image_layout: See `NativeModule`.
        training: See `NativeModule`.
        scope: Name within the owner.

    Raises:
        BuildError: Something else than an `nnx.Module`.
        BackendError: When it is built on another backend.
    """

    framework = "jax"

    def __init__(
        self,
        module: Any,
        encodes_observations: bool = False,
        image_layout: str = "channels_last",
        training: bool | None = None,
        scope: str = "flax-module",
    ) -> None:
        from flax import nnx

        if not isinstance(module, nnx.Module):
            self._refuse(module, "flax.nnx.Module")
        module = nnx.clone(module)
        parts = [("/".join(map(str, path)), part) for path, part in nnx.iter_modules(module)]
        drawing = [f"{name} (Dropout)" for name, part in parts if isinstance(part, nnx.Dropout) and part.rate > 0]
        differing = drawing + [f"{name} (BatchNorm)" for name, part in parts if isinstance(part, nnx.BatchNorm)]
        if training:
            module.train()
        else:
            module.eval()
        graph, state = nnx.split(module)
        flat = dict(nnx.to_flat_state(state))
        keys = {path for path, leaf in flat.items() if isinstance(leaf, nnx.RngState)}  # of dropout, which is off
        names = {".".join(map(str, path)): path for path in flat if path not in keys}
        values = {name: np.array(flat[path].get_value()) for name, path in names.items()}
        trained = {name for name, path in names.items() if isinstance(flat[path], nnx.Param)}
        super().__init__(
            {name: value for name, value in values.items() if name in trained},
            {name: value for name, value in values.items() if name not in trained},
            encodes_observations,
            image_layout,
            training,
            differing,
            drawing,
            scope,
        )
        self.names = names

        def rebuild(arrays: dict[str, Any]) -> Any:
            leaves = {path: flat[path] if path in keys else None for path in flat}
            leaves.update({path: flat[path].replace(arrays[name]) for name, path in names.items()})
            return nnx.merge(graph, nnx.from_flat_state(list(leaves.items())))

        def arrays_of(module: Any) -> dict[str, Any]:
            moved = dict(nnx.to_flat_state(nnx.state(module)))
            return {name: moved[path].get_value() for name, path in names.items()}

        self.rebuild, self.arrays_of = rebuild, arrays_of

    def _outputs(self, inputs: Any) -> Any:
        module = self.rebuild(self._values())
        outputs = module(inputs)
        if self.training:
            moved = self.arrays_of(module)
            for name, cell in self.statistics.items():
                cell.assign(moved[name])
        return outputs
