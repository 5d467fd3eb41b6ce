"""Files that take long come first, whatever order they are found in; tests stay as they are within a file."""

import pathlib
from types import SimpleNamespace

from tests import conftest


class Item:
    """A test with a name, and the names of its marks."""

    def __init__(self, path, name, *marks):
        self.path, self.name = pathlib.Path(path), name
        self._marks = [SimpleNamespace(name=mark) for mark in marks]

    def iter_markers(self):
        return iter(self._marks)


def test_runners_come_first_then_files_of_many_slow_tests():
    items = [
        Item("a", "a2"),
        Item("a", "a1"),
        Item("b", "b2", "slow"),
        Item("b", "b1", "slow", "slow"),
        Item("c", "c1", "runner"),
        Item("d", "d1", "slow"),
        Item("e", "e1"),
        Item("f", "f1", "runner", "slow"),
    ]
    conftest.pytest_collection_modifyitems(items)
    assert [each.name for each in items] == ["f1", "c1", "b2", "b1", "d1", "a2", "a1", "e1"]


def test_workers_are_given_files_in_that_order():
    config = SimpleNamespace(option=SimpleNamespace(loadscopereorder=True))
    conftest.pytest_configure(config)
    assert config.option.loadscopereorder is False
    conftest.pytest_configure(SimpleNamespace(option=SimpleNamespace()))
