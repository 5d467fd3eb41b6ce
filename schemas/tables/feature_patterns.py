"""Patterns of column names: `*` matches any letters; the matching columns follow from schemas alone."""

import dataclasses
import fnmatch
from collections.abc import Iterable

from dapple_dp.schemas.errors import ConfigError, SchemaMismatchError

_ANY = "*"
_MOST_NAMES = 3


def is_pattern(name: str) -> bool:
    """Returns whether a name is a pattern."""
    return _ANY in name


def has_patterns(features: str | tuple[str, ...]) -> bool:
    """Returns whether features have patterns, so that the columns depend on a schema."""
    return not isinstance(features, str) and any(map(is_pattern, features))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePatterns:
    """Selection of features from the columns of a schema.

    Attributes:
      features: names and patterns, as given in the job.
      excepted: names and patterns of columns that are not features.
      client_id: column that identifies the client, which is never a feature.
    """

    features: tuple[str, ...]
    excepted: tuple[str, ...] = ()
    client_id: str | None = None

    def columns(self, names: Iterable[str]) -> tuple[str, ...]:
        """Returns the features among the columns of a schema, in its order."""
        return tuple(name for name in names if _any(self.features, name) and not _any(self.excepted, name))

    def resolved(self, names: Iterable[str], where: str) -> tuple[str, ...]:
        """Returns the features, and checks that every pattern matches a column.

        Args:
          names: columns of a schema, in its order.
          where: name of the table in messages.

        Raises:
          ConfigError: if a pattern or an exception matches nothing, or a pattern the client id.
        """
        names = tuple(names)
        for setting, patterns in (("features", self.features), ("except", self.excepted)):
            lost = next((pattern for pattern in patterns if not any(_matches(pattern, name) for name in names)), None)
            if lost is not None:
                raise ConfigError(
                    f"data.{setting} has {lost!r}, which matches no column of {where}; correct or remove it."
                )
        result = self.columns(names)
        if self.client_id in result:
            raise ConfigError(
                f"data.features must not include data.client_id, got a pattern that matches {self.client_id!r}; "
                f"write data.except: [{self.client_id}]."
            )
        starred = next((name for name in result if is_pattern(name)), None)
        if starred is not None or not result:
            got = "none" if starred is None else f"{starred!r}"
            raise ConfigError(
                f"data.features must match columns without '*' in their names, got {got} in {where}; rename them, or "
                "correct data.features and data.except."
            )
        return result

    def check(self, names: Iterable[str], features: tuple[str, ...], where: str) -> None:
        """Refuses a file in which the patterns match other columns than in the first one.

        Raises:
          SchemaMismatchError: if they do; names some of the columns.
        """
        matched = set(self.columns(names))
        others = sorted(matched.symmetric_difference(features))[:_MOST_NAMES]
        if others:
            raise SchemaMismatchError(
                f"data.features must match the same columns in every file, got others in {where}, such as "
                f"{', '.join(map(repr, others))}; list the columns by name, or name the others in data.except."
            )


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(_matches(pattern, name) for pattern in patterns)


def _matches(pattern: str, name: str) -> bool:
    """Returns whether a name matches; only `*` is special, so `x[0]` and `why?` are plain names."""
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))
