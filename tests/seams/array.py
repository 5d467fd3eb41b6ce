"""Covering arrays: few rows of levels, among which each pair of levels that may meet stands at least once."""

import dataclasses
import functools
import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allpairspy import AllPairs

Row = dict[str, str]
Cell = tuple[str, str]
Settings = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factor:
    """What a user may choose, and the choices.

    Attributes:
      name: of the factor.
      levels: each level with what it changes in a job; `section.setting` or a whole section.
      covers: settings of the schema, as `section.setting`, that the levels give other values than the default.
    """

    name: str
    levels: Mapping[str, Mapping[str, Any]]
    covers: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """Levels that must not meet.

    Attributes:
      cells: factors with their levels, all of which together are excluded.
      refusal: a regular expression of the sentence that says so; None where the pair has no meaning.
    """

    cells: Mapping[str, frozenset[str]]
    refusal: str | None = None

    def __str__(self) -> str:
        """The same in every process, as names of tests must be."""
        return " ".join(f"{name}={'|'.join(sorted(levels))}" for name, levels in self.cells.items())

    def has(self, row: Mapping[str, str]) -> bool:
        """Whether a row, whole or in part, holds what is excluded."""
        return all(row.get(name) in levels for name, levels in self.cells.items())

    def has_but(self, row: Mapping[str, str], factor: str) -> bool:
        """Whether a row holds what is excluded, but for one factor."""
        return all(row.get(name) in levels for name, levels in self.cells.items() if name != factor)


def excluded(refusal: str | None = None, /, **cells: str) -> Excluded:
    """Levels, several of one factor with `|` between, that are refused by a sentence."""
    if refusal is not None:
        re.compile(refusal)
    return Excluded(cells={name: frozenset(text.split("|")) for name, text in cells.items()}, refusal=refusal)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Factors of one kind of job, and what must not meet."""

    factors: Sequence[Factor]
    excluded: Sequence[Excluded] = ()

    def is_valid(self, row: Mapping[str, str]) -> bool:
        """Whether a row, whole or in part, holds nothing that is excluded."""
        return not any(each.has(row) for each in self.excluded)

    @functools.cached_property
    def _beside(self) -> Mapping[str, Sequence[Excluded]]:
        """What a factor is excluded by."""
        return {each.name: [rule for rule in self.excluded if each.name in rule.cells] for each in self.factors}

    def _levels(self, factor: Factor, row: Row) -> list[str]:
        """Levels of a factor that may stand beside others."""
        rules = [rule for rule in self._beside[factor.name] if rule.has_but(row, factor.name)]
        return [each for each in factor.levels if not any(each in rule.cells[factor.name] for rule in rules)]

    def _is_open(self, row: Row) -> bool:
        """Whether a valid row leaves each of the other factors a level."""
        return self.is_valid(row) and all(self._levels(each, row) for each in self.factors if each.name not in row)

    def pairs(self) -> Iterator[tuple[Cell, Cell]]:
        """All pairs of levels of two factors."""
        for first, second in itertools.combinations(self.factors, 2):
            for one, other in itertools.product(first.levels, second.levels):
                yield (first.name, one), (second.name, other)

    def completed(self, row: Row) -> Row | None:
        """A whole valid row around some levels, as close to the first levels as may be; None if there is none."""
        if not self.is_valid(row):
            return None
        left = {each.name: self._levels(each, row) for each in self.factors if each.name not in row}
        if not left:
            return row
        name = min(left, key=lambda each: len(left[each]))
        for level in left[name]:
            if (found := self.completed(row | {name: level})) is not None:
                return found
        return None

    def rows(self) -> list[Row]:
        """A covering array: each pair that some valid row holds stands in one of its rows."""
        names = [each.name for each in self.factors]
        # Levels that are always refused would let the search go on and on.
        valid = [[level for level in each.levels if self.completed({each.name: level})] for each in self.factors]
        begun = AllPairs(valid, filter_func=lambda part: self.is_valid(dict(zip(names, part, strict=False))))
        rows = [dict(zip(names, part, strict=True)) for part in begun]
        return rows + self._missing(rows)

    def _missing(self, rows: Sequence[Row]) -> list[Row]:
        """Rows for the pairs that others leave out, each with as many of these pairs as fit."""
        held = {pair for row in rows for pair in _pairs_of(row, self.factors)}
        left = [pair for pair in self.pairs() if pair not in held and self.is_valid(dict(pair))]
        left = [pair for pair in left if self.completed(dict(pair)) is not None]
        added = []
        while left:
            row = dict(left[0])
            for pair in left[1:]:
                wider = row | dict(pair)
                if all(row.get(name, level) == level for name, level in pair) and self._is_open(wider):
                    row = wider
            whole = self.completed(row) or self.completed(dict(left[0]))
            assert whole is not None
            added.append(whole)
            held = set(_pairs_of(whole, self.factors))
            left = [pair for pair in left if pair not in held]
        return added

    def drawn(self, rng: random.Random) -> Row:
        """A valid row at random, by which triples meet that no pair stands for."""
        while True:
            row: Row = {}
            for each in rng.sample(list(self.factors), len(self.factors)):
                levels = self._levels(each, row)
                if not levels:
                    break
                row[each.name] = rng.choice(levels)
            else:
                return {each.name: row[each.name] for each in self.factors}

    def only_excluded_by(self, rule: Excluded) -> list[Row]:
        """A row for each level of the widest factor of a rule, as close to the first levels as may be, that holds
        what the rule excludes and nothing else that is excluded."""
        others = Table(factors=self.factors, excluded=[each for each in self.excluded if each is not rule])
        widest = max(rule.cells, key=lambda name: len(rule.cells[name]))
        found = []
        for level in sorted(rule.cells[widest]):
            rest = [[(name, each) for each in sorted(levels)] for name, levels in rule.cells.items() if name != widest]
            rows = (others.completed({widest: level} | dict(cells)) for cells in itertools.product(*rest))
            found += [row for row in rows if row is not None][:1]
        assert found, rule
        return found

    def holds(self, rows: Sequence[Row]) -> int:
        """How many pairs of levels stand in rows."""
        return len({pair for row in rows for pair in _pairs_of(row, self.factors)})


def _pairs_of(row: Row, factors: Sequence[Factor]) -> Iterator[tuple[Cell, Cell]]:
    """All pairs of a row, in the order of `Table.pairs`."""
    yield from itertools.combinations([(each.name, row[each.name]) for each in factors], 2)
