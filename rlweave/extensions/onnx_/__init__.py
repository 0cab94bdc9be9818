"""The ONNX Runtime backend: acting only. Graphs are traced once into an ONNX model whose inputs are the weights."""

from rlweave.extensions.onnx_.runtime import BACKEND

__all__ = ["BACKEND"]
