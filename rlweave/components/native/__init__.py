"""Modules written for one framework, as components of a graph on that framework's backend.

Importing this package imports no framework; making one of the components does.
"""

from rlweave.components.native.flax_module import FlaxModule
from rlweave.components.native.keras_module import KerasModule
from rlweave.components.native.torch_module import TorchModule

__all__ = ["FlaxModule", "KerasModule", "TorchModule"]
