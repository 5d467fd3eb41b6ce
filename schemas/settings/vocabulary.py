"""Public vocabulary, in a job or in a public text file: the only terms that can appear in any output."""

import unicodedata
from collections.abc import Callable
from typing import Annotated, ClassVar, Self

import pydantic
from pydantic import BeforeValidator, Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Section, Text

MOST_TERMS = 1 << 16
MOST_LETTERS = 100


def _words(value: object) -> object:
    """Validates terms and returns them as a tuple: distinct, short, without control characters."""
    if value is None:
        return None
    words = tuple(value) if isinstance(value, list | tuple) else ()
    plain = [isinstance(word, str) and word.strip() == word and word != "" for word in words]
    if not all(plain) or not plain:
        raise rejection.broken_rule("a non-empty list of terms without spaces around them", got=_place(plain))
    if len(words) > MOST_TERMS:
        raise rejection.broken_rule(f"a list of at most {MOST_TERMS} terms", got="more")
    shown = [
        len(word) <= MOST_LETTERS and not any(unicodedata.category(char)[0] == "C" for char in word) for word in words
    ]
    if not all(shown):
        rule = f"a list of terms of at most {MOST_LETTERS} letters, none a control character"
        raise rejection.broken_rule(rule, got=_place(shown))
    if len(set(words)) < len(words):
        first = dict(zip(reversed(words), reversed(range(len(words))), strict=True))
        once = [first[word] == place for place, word in enumerate(words)]
        raise rejection.broken_rule("a list without duplicates", got=_place(once))
    return words


def _place(right: list[bool]) -> str | None:
    """Describes the position of the first fault; None without terms. Quotes nothing: the file may be a private one."""
    return f"a problem at position {right.index(False) + 1}" if right else None


class VocabularySection(Section):
    """A section with public terms."""

    named: ClassVar[str] = ""
    """Prefix of settings in this section's own errors."""

    vocabulary: Text | None = Field(
        default=None, description="the path of a public text file with a term per line, or leave it out for words"
    )
    words: Annotated[tuple[str, ...] | None, BeforeValidator(_words)] = Field(
        default=None,
        description="a list of the public terms themselves, or leave it out for those of vocabulary",
    )

    @pydantic.model_validator(mode="after")
    def _terms_come_from_somewhere(self) -> Self:
        if self.vocabulary is None and self.words is None:
            raise ConfigError(
                f"{self.named}vocabulary or {self.named}words is required; give a public text file with one term "
                f"per line as {self.named}vocabulary."
            )
        return self

    def with_words(self, read: Callable[[str, str], str], within: str) -> Self:
        """Returns the section with the terms of its file, blank lines left out; unchanged if it has terms.

        Args:
          read: (path, name of the setting) -> text; raises ConfigError.
          within: name of the section.
        """
        if self.words is not None or self.vocabulary is None:
            return self
        # Editors on Windows write a byte order mark before the first line.
        text = read(self.vocabulary, f"{within}.vocabulary").removeprefix("\ufeff")
        lines = (line.strip() for line in text.splitlines())
        words = [line for line in lines if line]
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return rejection.check_config(type(self), given | {"words": words}, within=within)
