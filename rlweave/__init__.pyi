"""The public names for type checkers, which do not follow `__getattr__`."""

from rlweave import ops as ops
from rlweave import spaces as spaces
from rlweave.algorithms.loading import load as load
from rlweave.algorithms.run import train as train
from rlweave.graph import Component as Component
from rlweave.graph import api as api
from rlweave.graph import build as build
from rlweave.graph import graph_fn as graph_fn
from rlweave.graph import register as register
from rlweave.graph import shared as shared

__version__: str

def __dir__() -> list[str]: ...
