"""The zoo: observation and action spaces of every kind, and what is said where one cannot be taken.

Spaces that Gymnasium names (`Discrete` with a start, `MultiDiscrete`, ...) come from there, as environments give them.
"""

import dataclasses

import numpy as np
from gymnasium import spaces as gym

from rlweave.components.action_leaves import MAX_ACTIONS
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space, TextBox, Tuple
from rlweave.spaces.gymnasium_spaces import from_gymnasium

INF = np.inf

MIXED = Dict(
    cards=Tuple(IntBox(32), IntBox(11), IntBox(2)),  # Blackjack
    empty=Dict(),
    nothing=Tuple(),
    order=IntBox(50, shape=(4,), layout="tokens"),
    outer=Dict(inner=Dict(speed=FloatBox(shape=(2,))), flag=BoolBox(shape=(2, 2))),
    picture=IntBox(0, 256, shape=(6, 5, 1), dtype="uint8", layout="channels_last"),
    precise=FloatBox(-1, 1, shape=(2,), dtype="float64"),
    zero=FloatBox(shape=(0,)),
)
"""Every kind of leaf and container at once."""

OBSERVATIONS: dict[str, Space] = {
    # boxes of floats
    "vector": FloatBox(shape=(3,)),
    "bounded": FloatBox(-1, 1, shape=(2,)),
    "half-bounded": FloatBox([0, -INF, -INF], [INF, 1, INF]),
    "one value": FloatBox(2, 2, shape=(2,)),
    "number": FloatBox(),
    "matrix": FloatBox(shape=(2, 3)),
    "four axes": FloatBox(shape=(2, 1, 2, 2)),
    "zero-size": FloatBox(shape=(0,)),
    "zero-size matrix": FloatBox(0, 1, shape=(2, 0)),
    "float64": from_gymnasium(gym.Box(-1e9, 1e9, (2,), np.float64)),
    "float64 kept": FloatBox(-1, 1, shape=(2,), dtype="float64"),
    # what can be counted
    "discrete": from_gymnasium(gym.Discrete(5)),
    "discrete with start": from_gymnasium(gym.Discrete(4, start=-2)),
    "one category": from_gymnasium(gym.Discrete(1)),
    "too many categories to list": from_gymnasium(gym.Discrete(100_000)),
    "multi-discrete": from_gymnasium(gym.MultiDiscrete([3, 1, 4])),
    "multi-discrete matrix": from_gymnasium(gym.MultiDiscrete([[2, 3], [4, 2]], start=[[1, -1], [0, 7]])),
    "multi-binary": from_gymnasium(gym.MultiBinary((2, 2))),
    "flag": BoolBox(),
    # boxes of integers
    "integers": from_gymnasium(gym.Box(-5, 5, (3,), np.int64)),
    "integers apart": IntBox([-3, 10], [0, 12]),
    "unbounded integers": IntBox(shape=(2,)),
    "half-bounded integers": from_gymnasium(gym.Box(0, np.iinfo(np.int32).max, (2,), np.int32)),
    "wide integers": IntBox(-(2**40), 2**40, shape=(2,), dtype="int64"),
    "narrow integers": IntBox(-3, 3, shape=(2,), dtype="int8"),
    "unsigned integers": from_gymnasium(gym.Box(0, 5, (2,), np.uint32)),
    "zero-size integers": IntBox(0, 3, shape=(0,)),
    "bytes": from_gymnasium(gym.Box(0, 255, (4,), np.uint8)),
    "narrow bytes": from_gymnasium(gym.Box(0, 3, (2,), np.uint8)),
    "bytes in three axes": IntBox(0, 9, shape=(2, 2, 1), dtype="uint8"),
    # images and text
    "image, channels last": from_gymnasium(gym.Box(0, 255, (6, 5, 3), np.uint8), "channels_last"),
    "image, channels first": from_gymnasium(gym.Box(0, 255, (3, 6, 5), np.uint8), "channels_first"),
    "image, frames first": IntBox(0, 256, shape=(4, 6, 5), dtype="uint8", layout="frames_first"),
    "image of floats": FloatBox(0, 1, shape=(6, 5, 2), layout="channels_last"),
    "image of few levels": IntBox(-2, 3, shape=(6, 5, 1), layout="channels_last"),
    "tokens": MIXED["order"],
    # containers
    "blackjack": MIXED["cards"],
    "empty ones first": Dict(a=Dict(), b=Tuple(), c=Tuple(Dict(), FloatBox(shape=(2,)))),
    "nothing but a zero": Dict(zero=FloatBox(shape=(0,))),
    "strange keys": Dict({"0": FloatBox(), "a b": BoolBox(), "Grün.x": IntBox(2), "rewards": FloatBox(shape=(1,))}),
    "deep": Tuple(Dict(a=Tuple(Dict(b=Tuple(FloatBox(shape=(1,))))))),
    "two images": Dict(
        left=IntBox(0, 256, shape=(6, 5, 1), dtype="uint8", layout="channels_last"),
        right=IntBox(0, 256, shape=(2, 5, 6), dtype="uint8", layout="channels_first"),
        speed=FloatBox(shape=(1,)),
    ),
    "two texts": Dict(a=IntBox(9, shape=(3,), layout="tokens"), b=IntBox(7, shape=(2,), layout="tokens")),
    "mixed": MIXED,
}

ACTIONS: dict[str, Space] = {
    # what can be counted
    "discrete": from_gymnasium(gym.Discrete(3)),
    "discrete with start": IntBox(-1, 2),
    "one action": from_gymnasium(gym.Discrete(1)),
    "multi-discrete": from_gymnasium(gym.MultiDiscrete([2, 3])),
    "multi-discrete matrix": IntBox([[1, -1], [0, 7]], [[3, 2], [4, 8]]),
    "multi-binary": from_gymnasium(gym.MultiBinary(3)),
    "flag": BoolBox(),
    "integers": from_gymnasium(gym.Box(-10, 10, (2,), np.int64)),
    "byte": from_gymnasium(gym.Box(0, 3, (2,), np.uint8)),
    "zero-size integers": IntBox(3, shape=(0,)),
    "nested counts": Dict(empty=Dict(), inner=Tuple(IntBox(2), Dict(on=BoolBox(shape=(1,)))), none=Tuple()),
    # floats
    "box": FloatBox(-1, 1, shape=(2,)),
    "float64": FloatBox(-0.3, 0.1, dtype="float64"),
    "float16": FloatBox(-8, 8, shape=(1,), dtype="float16"),
    "half-bounded": FloatBox([0, -INF], [INF, 1]),
    "unbounded": FloatBox(shape=(2,)),
    "one value": FloatBox(2, 2, shape=(2,)),
    "matrix": FloatBox(100, 200, shape=(2, 1)),
    "zero-size": FloatBox(-1, 1, shape=(0,)),
    "nested floats": Dict(a=Dict(), b=Tuple(FloatBox(0, 9), Dict(c=FloatBox(-2, 2, shape=(2, 2)), d=Tuple()))),
    # both
    "mixed": Dict(
        empty=Dict(), gear=IntBox(3), lamp=BoolBox(), wheel=FloatBox(-1, 1, shape=(2,)), zero=FloatBox(shape=(0,))
    ),
}


@dataclasses.dataclass(frozen=True)
class Refused:
    """A space that no agent takes.

    Attributes:
        space: The space.
        leaf: How the error names the leaf, or the space where it has none.
        why: What the error says of the reason.
        instead: What the error says can be taken.
    """

    space: Space
    leaf: str
    why: str
    instead: str


REFUSED_OBSERVATIONS: dict[str, Refused] = {
    "text": Refused(TextBox(20), "observation", "text cannot be encoded", "make_env"),
    "text among others": Refused(
        Dict(say=TextBox(20), speed=FloatBox()), "observation 'say'", "text cannot be encoded", "make_env"
    ),
    "no leaf": Refused(Dict(), "observation", "without any leaf", "FloatBox(shape=(0,))"),
    "no leaf in containers": Refused(
        Tuple(Dict(a=Tuple()), Dict()), "observation", "without any leaf", "FloatBox(shape=(0,))"
    ),
    "float16": Refused(FloatBox(-8, 8, dtype="float16"), "observation", "every backend", "float32"),
    "uint32": Refused(Tuple(IntBox(0, 5, dtype="uint32")), "observation '0'", "every backend", "int32"),
    "image of unknown layout": Refused(
        Dict(a=FloatBox(), see=IntBox(0, 256, shape=(6, 5, 3), dtype="uint8")),
        "observation 'see'", "channels is not known", "channels_last",
    ),
    "image without bounds": Refused(
        Dict(see=IntBox(shape=(6, 5, 3), layout="channels_last")), "observation 'see'", "no bounds", "IntBox(0, 256"
    ),
}  # fmt: skip

REFUSED_ACTIONS: dict[str, Refused] = {
    "text": Refused(TextBox(20), "action", "no policy gives such an action", "FloatBox"),
    "text among others": Refused(Dict(say=TextBox(20), turn=IntBox(2)), "action 'say'", "no policy gives", "FloatBox"),
    "no leaf": Refused(Dict(), "action", "without actions", "IntBox(n)"),
    "no leaf in containers": Refused(Tuple(Dict(), Tuple()), "action", "without actions", "IntBox(n)"),
    "unbounded integers": Refused(IntBox(shape=(2,)), "action", "needs a range", "IntBox(n)"),
    "half-bounded integers": Refused(
        Dict(much=from_gymnasium(gym.Box(0, np.iinfo(np.int32).max, (1,), np.int32))),
        "action 'much'", "needs a range", "IntBox(n)",
    ),
    "too many integers": Refused(IntBox(MAX_ACTIONS + 1), "action", f"at most {MAX_ACTIONS}", "IntBox(n)"),
    "integers outside of int32": Refused(
        Tuple(IntBox(2**40, 2**40 + 2, dtype="int64")), "action '0'", "outside of int32", "count from 0"
    ),
}  # fmt: skip
