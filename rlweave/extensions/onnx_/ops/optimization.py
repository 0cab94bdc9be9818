"""Steps of optimizers: this backend acts only."""

from rlweave.backends.numpy_ import ops as reference
from rlweave.extensions.onnx_.symbolic import without_form

adam_update = without_form(reference.adam_update)
global_norm_clip = without_form(reference.global_norm_clip)
rmsprop_update = without_form(reference.rmsprop_update)
sgd_update = without_form(reference.sgd_update)
