"""TensorFlow, imported quietly and without taking hold of a GPU; every module of this backend imports it from here."""

from __future__ import annotations

import contextlib
import os
import warnings

# Notes about CPU features and the like; a level that is set stays.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

with warnings.catch_warnings():
    # what TensorFlow and its dependencies deprecate in each other is nothing that users of rlweave could change
    warnings.simplefilter("ignore")
    import tensorflow as tf

# By default TensorFlow takes all memory of all GPUs at its first operation. (Too late, and not ours to say, where
# somebody has used it before.)
with contextlib.suppress(RuntimeError):
    tf.config.set_visible_devices([], "GPU")

__all__ = ["tf"]
