"""`TorchModule`: an `nn.Module` as a component."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from rlweave.components.native.native_module import NativeModule
from rlweave.graph import register


@register("torch_module")
class TorchModule(NativeModule):
    """A `torch.nn.Module` as a layer, on the torch backend.

    Its parameters become variables named as in the module (`0.weight`, below the component's path) with the values
    that they have now; buffers become variables that are not trained. The module given is copied and stays as it is.

    Args:
        module: The module; its `forward` takes the inputs of `call`, with one batch axis.
        encodes_observations: See `NativeModule`.
        image_layout: See `NativeModule`.
        training: See `NativeModule`.
        scope: Name within the owner.

    Raises:
        BuildError: Something else than an `nn.Module`.
        BackendError: When it is built on another backend.
    """

    framework = "torch"

    def __init__(
        self,
        module: Any,
        encodes_observations: bool = False,
        image_layout: str = "channels_last",
        training: bool | None = None,
        scope: str = "torch-module",
    ) -> None:
        import torch

        if not isinstance(module, torch.nn.Module):
            self._refuse(module, "torch.nn.Module")
        module = copy.deepcopy(module).cpu().train(bool(training))
        drops = torch.nn.modules.dropout._DropoutNd
        named = {name: part for name, part in module.named_modules() if name}
        drawing = [f"{n} ({type(m).__name__})" for n, m in named.items() if isinstance(m, drops) and m.p > 0]
        norms = torch.nn.modules.batchnorm._BatchNorm
        differing = drawing + [f"{n} ({type(m).__name__})" for n, m in named.items() if isinstance(m, norms)]
        super().__init__(
            {name: _array(tensor) for name, tensor in module.named_parameters()},
            {name: _array(tensor) for name, tensor in module.named_buffers()},
            encodes_observations,
            image_layout,
            training,
            differing,
            drawing,
            scope,
        )
        self.module, self.functional_call = module.to("meta"), torch.func.functional_call

    def _outputs(self, inputs: Any) -> Any:
        if not self.training:
            return self.functional_call(self.module, self._values(), (inputs,))
        # torch moves statistics in place
        moved = {name: cell.value.clone() for name, cell in self.statistics.items()}
        outputs = self.functional_call(self.module, self._values() | moved, (inputs,))
        for name, cell in self.statistics.items():
            cell.assign(moved[name])
        return outputs


def _array(tensor: Any) -> np.ndarray:
    return np.array(tensor.detach().numpy())
