"""`TorchModule`: an `nn.Module` as a component."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from rlweave.components.native.native_module import NativeModule
from rlweave.graph import graph_fn, register


@register("torch_module")
class TorchModule(NativeModule):
    """A `torch.nn.Module` as a layer, on the torch backend.

    Its parameters become variables named as in the module (`0.weight`, below the component's path) with the values
    that they have now; buffers become variables that are not trained. The module given is copied and stays as it is.
    It runs in evaluation mode: no dropout, and batch normalization by the statistics that it came with.

    Args:
        module: The module; its `forward` takes the inputs of `call`.
        encodes_states: See `NativeModule`.
        scope: Name within the owner.

    Raises:
        BuildError: Something else than an `nn.Module`.
        BackendError: When it is built on another backend.
    """

    framework = "torch"

    def __init__(self, module: Any, encodes_states: bool = False, scope: str = "torch-module") -> None:
        import torch

        if not isinstance(module, torch.nn.Module):
            self._refuse(module, "torch.nn.Module")
        module = copy.deepcopy(module).cpu().eval()
        super().__init__(
            {name: _array(tensor) for name, tensor in module.named_parameters()},
            {name: _array(tensor) for name, tensor in module.named_buffers()},
            encodes_states,
            scope,
        )
        self.module, self.functional_call = module.to("meta"), torch.func.functional_call

    @graph_fn
    def call(self, inputs: Any) -> Any:
        """Applies the module: what its `forward` takes, and what it gives, nested arrays of any shapes."""
        values = {name: cell.value for name, cell in self.parameters.items()}
        values.update({name: cell.value for name, cell in self.statistics.items()})
        return self.functional_call(self.module, values, (inputs,))


def _array(tensor: Any) -> np.ndarray:
    return np.array(tensor.detach().numpy())
