"""From text to the numbers of its words, on the host."""

from __future__ import annotations

import functools
import re
import zlib
from typing import Any

import numpy as np

from rlweave.errors import SpaceError

_WORD = re.compile(r"\w+|[^\w\s]")


@functools.lru_cache(maxsize=1 << 16)
def _word_number(word: str, buckets: int) -> int:
    # not Python's hash, which differs from process to process
    return 1 + zlib.crc32(word.encode("utf-8", "surrogatepass")) % (buckets - 1)


def hash_text(texts: Any, tokens: int, buckets: int) -> np.ndarray:
    """Numbers of the words of texts.

    Words are runs of letters and digits, in lower case, and single other characters that are no space. A word's number
    is the CRC-32 of its UTF-8 bytes modulo the number of buckets, so it is the same in every process and version; two
    words may share one. Words after the first `tokens` are left out.

    Args:
        texts: A str, or an array of them, of any shape.
        tokens: How many words are kept.
        buckets: How many numbers there are, 0 included, which stands for "no word".

    Returns:
        int32, (..., tokens).

    Raises:
        SpaceError: Sizes that are too small, or something that is no text.

    >>> hash_text("Go left, go", tokens=5, buckets=100).tolist()
    [64, 36, 99, 64, 0]
    """
    check_hashing(tokens, buckets, "hash_text")
    array = np.asarray(texts, object)
    numbers = np.zeros((array.size, tokens), np.int32)
    for row, text in zip(numbers, array.reshape(-1), strict=True):
        if not isinstance(text, str):
            raise SpaceError("only text can be hashed", where="hash_text", received=repr(text)[:80], fix="pass a str")
        for i, word in enumerate(_WORD.findall(text.lower())[:tokens]):
            row[i] = _word_number(word, buckets)
    return numbers.reshape((*array.shape, tokens))


def check_hashing(tokens: int, buckets: int, where: str) -> None:
    """Checks the sizes that `hash_text` takes.

    Raises:
        SpaceError: Too small, or no whole numbers.
    """
    for name, value, least in (("tokens", tokens, 1), ("buckets", buckets, 2)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SpaceError(
                f"{name} must be a whole number, at least {least}", where=where, received=f"{name}={value!r}"
            )
