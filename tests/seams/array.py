"""Covering arrays: few rows of levels, among which each pair of levels that may meet stands at least once."""

import collections
import dataclasses
import functools
import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = dict[str, str]
Cell = tuple[str, str]
Settings = dict[str, Any]
_TRIES = 6
"""Rows among which the one with most new pairs is taken; more make the array hardly shorter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factor:
    """Setting that a user may choose, and the choices.

    Attributes:
      name: of the factor.
      levels: each level with what it changes in a job; `section.setting` or a whole section. The first is what rows
        have that need no other, so it should be the one that runs fastest.
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
        """Returns whether a row, whole or in part, holds what is excluded."""
        return all(row.get(name) in levels for name, levels in self.cells.items())

    def has_but(self, row: Mapping[str, str], factor: str) -> bool:
        """Returns whether a row holds what is excluded, but for one factor."""
        return all(row.get(name) in levels for name, levels in self.cells.items() if name != factor)


def excluded(refusal: str | None = None, /, **cells: str) -> Excluded:
    """Levels, several of one factor with `|` between, that are refused by a sentence."""
    if refusal is not None:
        re.compile(refusal)
    return Excluded(cells={name: frozenset(text.split("|")) for name, text in cells.items()}, refusal=refusal)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Factors of one kind of job, and what must not meet.

    Attributes:
      factors: that rows have a level of.
      excluded: levels that must not meet.
      kept: levels that meet in one of the few rows that run on every submission, such as those of planted faults.
    """

    factors: Sequence[Factor]
    excluded: Sequence[Excluded] = ()
    kept: Sequence[Mapping[str, str]] = ()

    def __post_init__(self) -> None:
        levels = {each.name: set(each.levels) for each in self.factors}
        for rule in self.excluded:
            unknown = {name: each - levels[name] for name, each in rule.cells.items() if not each <= levels[name]}
            if unknown:
                raise ValueError(f"what is excluded must be levels of the table, got {unknown}; correct the rule.")

    def is_valid(self, row: Mapping[str, str]) -> bool:
        """Returns whether a row, whole or in part, holds nothing that is excluded."""
        return not any(each.has(row) for each in self.excluded)

    @functools.cached_property
    def _beside(self) -> Mapping[str, Sequence[Excluded]]:
        """Returns what a factor is excluded by."""
        return {each.name: [rule for rule in self.excluded if each.name in rule.cells] for each in self.factors}

    @functools.cached_property
    def _deciding(self) -> Mapping[str, Sequence[str]]:
        """The other factors of what a factor is excluded by."""
        return {
            name: sorted({*itertools.chain(*(rule.cells for rule in rules))} - {name})
            for name, rules in self._beside.items()
        }

    @functools.cached_property
    def _known(self) -> dict[tuple[str | None, ...], list[str]]:
        """Returns what `_levels` has found, by the factor and the levels that decide."""
        return {}

    def _levels(self, factor: Factor, row: Row) -> list[str]:
        """Levels of a factor that may stand beside others."""
        key = (factor.name, *map(row.get, self._deciding[factor.name]))
        if key not in self._known:
            out = [rule.cells[factor.name] for rule in self._beside[factor.name] if rule.has_but(row, factor.name)]
            self._known[key] = [each for each in factor.levels if not any(each in levels for levels in out)]
        return self._known[key]

    def _left(self, row: Row) -> dict[str, list[str]]:
        """Levels that may stand in a row, by factor that it lacks."""
        return {each.name: self._levels(each, row) for each in self.factors if each.name not in row}

    def pairs(self) -> Iterator[tuple[Cell, Cell]]:
        """All pairs of levels of two factors."""
        for first, second in itertools.combinations(self.factors, 2):
            for one, other in itertools.product(first.levels, second.levels):
                yield (first.name, one), (second.name, other)

    def completed(self, row: Row) -> Row | None:
        """A whole valid row around some levels, as close to the first levels as may be; None if there is none."""
        if not self.is_valid(row):
            return None
        left = self._left(row)
        if not left:
            return row
        name = min(left, key=lambda each: len(left[each]))
        for level in left[name]:
            if (found := self.completed(row | {name: level})) is not None:
                return found
        return None

    def rows(self) -> list[Row]:
        """A covering array: each pair that some valid row holds stands in one of its rows."""
        return list(self._covering)

    @functools.cached_property
    def _covering(self) -> list[Row]:
        """A covering array: each pair that some valid row holds, and every part of `kept`, stands in one of its rows.

        Each row begins with a pair that no row before it holds, and takes levels by how many such pairs they add. What
        a row then need not have becomes the first level.

        Source: Cohen, Dalal, Fredman, Patton (1997), The AETG system, IEEE Transactions on Software Engineering 23 (7).
        """
        rng, rows = random.Random(0), []
        new = {pair: None for pair in self.pairs() if self.is_valid(dict(pair))}
        while new:
            begun = [next(iter(new)), *rng.sample(list(new), min(len(new), _TRIES) - 1)]
            tries = [row for row in (self._grown(pair, new, rng) for pair in begun) if row is not None]
            if tries:
                rows.append(max(tries, key=lambda row: sum(pair in new for pair in self._pairs_of(row))))
            # What nothing can be built around needs no row.
            for pair in self._pairs_of(rows[-1]) if tries else begun[:1]:
                new.pop(pair, None)
        rows = self._simplified(rows)
        for part in self.kept:
            if not any(part.items() <= row.items() for row in rows):
                found = self.completed(dict(part))
                assert found is not None, f"{part} must stand in a valid row"
                rows.append(found)
        return rows

    def _grown(self, pair: tuple[Cell, Cell], new: Mapping[tuple[Cell, Cell], None], rng: random.Random) -> Row | None:
        """A valid row around a pair, each level the one that adds most new pairs; None if there is none."""
        row: Row = dict(pair)
        for each in sorted(rng.sample(list(self.factors), len(self.factors)), key=lambda each: -len(each.levels)):
            if each.name in row:
                continue
            gains = {level: self._gain((each.name, level), row, new) for level in self._levels(each, row)}
            for level in sorted(gains, key=lambda level: -gains[level]):
                wider = row | {each.name: level}
                if all(self._left(wider).values()):
                    row = wider
                    break
            else:
                return self.completed(dict(pair))
        return row

    def _gain(self, cell: Cell, row: Row, new: Mapping[tuple[Cell, Cell], None]) -> int:
        """Returns how many new pairs a level makes with those of a row."""
        return sum((cell, other) in new or (other, cell) in new for other in row.items())

    def _simplified(self, rows: list[Row]) -> list[Row]:
        """The rows with first levels wherever all pairs of another level stand in other rows, too."""
        held = collections.Counter(pair for row in rows for pair in self._pairs_of(row))
        kept = []
        for row in reversed(rows):
            for each in self.factors:
                level = next(iter(each.levels))
                if row[each.name] == level or level not in self._levels(each, row):
                    continue
                first = row | {each.name: level}
                lost = set(self._pairs_of(row)) - set(self._pairs_of(first))
                if all(held[pair] > 1 for pair in lost):
                    held.subtract(self._pairs_of(row))
                    held.update(self._pairs_of(first))
                    row = first
            if all(held[pair] > 1 for pair in self._pairs_of(row)):
                held.subtract(self._pairs_of(row))
            else:
                kept.append(row)
        return [{each.name: row[each.name] for each in self.factors} for row in reversed(kept)]

    def few(self) -> list[int]:
        """Numbers of few of the rows in which every level stands that stands in any, and every part of `kept`."""
        held: list[set[Any]] = [set(row.items()) for row in self._covering]
        for each in self.kept:
            for cells, row in zip(held, self._covering, strict=True):
                cells |= {tuple(each.items())} if each.items() <= row.items() else set()
        left, found = set().union(*held), []
        while left:
            found.append(max(range(len(held)), key=lambda index: len(held[index] & left)))
            left -= held[found[-1]]
        return sorted(found)

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
        """Returns how many pairs of levels stand in rows."""
        return len({pair for row in rows for pair in self._pairs_of(row)})

    def _pairs_of(self, row: Row) -> Iterator[tuple[Cell, Cell]]:
        """All pairs of a row, in the order of `pairs`."""
        yield from itertools.combinations([(each.name, row[each.name]) for each in self.factors], 2)
