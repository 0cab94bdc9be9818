"""`KerasModule`: a Keras model as a component."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave import ops
from rlweave.components.native.native_module import NativeModule
from rlweave.errors import BuildError
from rlweave.graph import register


@register("keras_module")
class KerasModule(NativeModule):
    """A Keras model (or layer) as a layer, on the backend that Keras computes with (`keras.backend.backend()`).

    Its weights become variables with the values that they have now, named by the place of their layer (`0/kernel`):
    Keras numbers the names of layers anew in each process. The model given stays as it is.

    Args:
        module: The model, built (it has been called, or it knows its inputs); it takes the inputs of `call`, with one
            batch axis.
        encodes_observations: See `NativeModule`.
        image_layout: See `NativeModule`.
        training: See `NativeModule`.
        scope: Name within the owner.

    Raises:
        BuildError: Something else than a Keras layer, or one that is not built.
        BackendError: When it is built on another backend.
    """

    def __init__(
        self,
        module: Any,
        encodes_observations: bool = False,
        image_layout: str = "channels_last",
        training: bool | None = None,
        scope: str = "keras-module",
    ) -> None:
        import keras

        if not isinstance(module, keras.layers.Layer):
            self._refuse(module, "keras.Model or keras.layers.Layer")
        if not module.built:
            raise BuildError(
                "a Keras model has no weights yet",
                received=repr(module.name),
                fix="call it once, or begin it with keras.Input(shape=...)",
            )
        parts = module._flatten_layers()
        noise = (keras.layers.Dropout, keras.layers.GaussianNoise, keras.layers.GaussianDropout)
        parts = [(part.name, type(part).__name__, part) for part in parts]
        drawing = [f"{name} ({kind})" for name, kind, part in parts if isinstance(part, noise)]
        norms = [f"{name} ({kind})" for name, kind, part in parts if isinstance(part, keras.layers.BatchNormalization)]
        places = list(dict.fromkeys(variable.path.rpartition("/")[0] for variable in module.variables))

        def name_of(variable: Any) -> str:
            return f"{places.index(variable.path.rpartition('/')[0])}/{variable.name}"

        super().__init__(
            {name_of(v): _array(v) for v in module.trainable_variables},
            {name_of(v): _array(v) for v in module.non_trainable_variables},
            encodes_observations,
            image_layout,
            training,
            drawing + norms,
            drawing,
            scope,
        )
        self.module, self.framework = module, keras.backend.backend()

    def _outputs(self, inputs: Any) -> Any:
        trained = [_inside(cell.value) for cell in self.parameters.values()]
        held = [_inside(cell.value) for cell in self.statistics.values()]
        outputs, moved = self.module.stateless_call(trained, held, _inside(inputs), training=self.training)
        if self.training:
            for cell, value in zip(self.statistics.values(), moved, strict=True):
                cell.assign(_outside(value))
        return _outside(outputs)


def _array(variable: Any) -> np.ndarray:
    import keras

    return np.array(keras.ops.convert_to_numpy(keras.ops.copy(variable.value)))


def _inside(x: Any) -> Any:
    """Arrays as Keras takes them: tensors of TensorFlow without what graph functions hold them in."""
    if isinstance(x, dict):
        return {key: _inside(item) for key, item in x.items()}
    if isinstance(x, list | tuple):
        return [_inside(item) for item in x]
    return getattr(x, "tensor", x)


def _outside(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _outside(item) for key, item in x.items()}
    if isinstance(x, list | tuple):
        return tuple([_outside(item) for item in x])
    return ops.asarray(x)
