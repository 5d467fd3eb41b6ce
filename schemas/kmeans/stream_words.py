"""Errors about the fit of a window in words of the `stream` job, whose settings have names of their own."""

import contextlib
import re
from collections.abc import Iterator

from schemas.errors import ConfigError

_WORDS = (
    (r"use algorithm feddp_kmeans\b", "use the fit job"),
    (r"recurring\.epoch\.(?=\w)", "stream."),
    (r"windows of an epoch \(stream, recurring\.epoch\)", "a stream"),
    (r"recurring\.(?=(?:memory|short_memory)\b(?! alone))", "stream."),
    (r"use recurring\.memory alone", "use the fit job with recurring.memory"),
    (r"\bto recurring\.epoch\b", "to stream.column"),
    (r"\brecurring\.epoch\b", "a stream"),
    (r"leave epoch out", "use the fit job"),
    (r"recurring\.previous\b", "{place}"),
    (r"leave (?:recurring|memory) out", "choose another start"),
    (r"(?:write )?recurring\.warm_start: false", "choose another start"),
)


@contextlib.contextmanager
def in_stream_words(index: int = 0) -> Iterator[None]:
    """Says errors about settings of a window as a user of a stream has written them.

    Args:
      index: of the window; the first one follows the start, and others the window before.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(_in_words(str(error), "stream.start" if index == 0 else "the window before")) from error


def _in_words(sentence: str, place: str) -> str:
    for pattern, words in _WORDS:
        sentence = re.sub(pattern, words.format(place=place), sentence)
    return sentence
