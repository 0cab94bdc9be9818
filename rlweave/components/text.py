"""Text: words become numbers on the host, and numbers become vectors in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave import ops
from rlweave.components.initializers import InitializerSpec, make_initializer
from rlweave.errors import BuildError, SpecError
from rlweave.graph import Component, graph_fn, register
from rlweave.spaces import IntBox, Space, TextBox
from rlweave.spaces.box import TOKENS
from rlweave.spaces.text_hashing import check_hashing, hash_text


@register("hash_text")
class HashText(Component):
    """Turns text into numbers of words, on the host; see `hash_text`.

    What learns inside of a loop or takes gradients cannot start on the host: agents get their text hashed by the
    environment (`make_env` does it), and memories hold numbers.

    Args:
        tokens: How many words of a text are kept.
        buckets: How many numbers there are, 0 ("no word") included.
        scope: Name within the owner.
    """

    def __init__(self, tokens: int = 32, buckets: int = 4096, scope: str = "hash-text") -> None:
        super().__init__(scope)
        check_hashing(tokens, buckets, scope)
        self.tokens, self.buckets = tokens, buckets

    @graph_fn(host=True, differentiable=False, spaces="_token_space")
    def call(self, texts: Any) -> Any:
        """Numbers of words: str objects (..., ) to int32 (..., tokens)."""
        return hash_text(texts, self.tokens, self.buckets)

    def _token_space(self, texts: Space) -> Space:
        if not isinstance(texts, TextBox):
            raise BuildError("only text can be hashed", where=self.path, received=repr(texts), fix="pass a TextBox")
        space = IntBox(self.buckets, shape=(*texts.shape, self.tokens))
        if not texts.shape:
            space = space._replace(layout=TOKENS)
        return space._replace(batch=texts.batch, time=texts.time)


@register("token_embedding")
class TokenEmbedding(Component):
    """A learned vector for each word, averaged over the words of a text (a bag of words).

    Args:
        units: Size of the vectors.
        initializer: Of the table (buckets, units); see `make_initializer`.
        number: How many numbers of words there are, 0 included. None: as the space of the inputs says, which results of
            other components do not.
        scope: Name within the owner.

    Raises:
        SpecError: No whole number of units.
    """

    def __init__(
        self,
        units: int = 32,
        initializer: InitializerSpec = "standard_normal",
        number: int | None = None,
        scope: str = "token-embedding",
    ) -> None:
        super().__init__(scope)
        if isinstance(units, bool) or not isinstance(units, int) or units < 1:
            raise SpecError("an embedding needs a whole number of units", where=scope, received=f"units={units!r}")
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise SpecError("an embedding needs a whole number of words", where=scope, received=f"number={number!r}")
        self.units, self.initializer, self.number = units, initializer, number
        make_initializer(initializer)

    def create_variables(self, inputs: Any) -> None:
        """The table, (buckets, units)."""
        tokens = isinstance(inputs, IntBox) and bool(inputs.shape)
        numbers = (self.number or inputs.num_categories) if tokens else None
        if numbers is None:
            raise BuildError(
                "an embedding takes numbers of words, counted from 0",
                where=self.path,
                received=repr(inputs),
                fix="IntBox(buckets, shape=(tokens,), layout='tokens')",
            )
        self.table = self.variable("table", (int(np.max(numbers)), self.units), make_initializer(self.initializer))

    @graph_fn
    def call(self, inputs: Any) -> Any:
        """The mean vector of the words that are there.

        Args:
            inputs: int32, (..., tokens); 0 is no word.

        Returns:
            float32, (..., units); zeros for a text without words.
        """
        present = ops.astype(inputs > 0, "float32")
        vectors = ops.take(self.table.value, inputs, axis=0) * present[..., None]
        return ops.sum(vectors, axis=-2) / ops.maximum(ops.sum(present, axis=-1), 1.0)[..., None]
