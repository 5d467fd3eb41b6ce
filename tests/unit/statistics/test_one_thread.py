"""Limits hold for all libraries that are there, are taken back, and cost little the second time."""

import sys
import threading
import types

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from dapple_dp.transforms.numerics import one_thread as module
from dapple_dp.transforms.numerics.one_thread import limit, one_thread


def counts():
    return {each["filepath"]: each["num_threads"] for each in threadpool_info()}


@pytest.fixture
def searches(monkeypatch):
    """Returns how often libraries have been looked for."""
    found = []

    def search():
        found.append(1)
        return ThreadpoolController()

    monkeypatch.setattr(module, "ThreadpoolController", search)
    monkeypatch.setattr(module, "_known", None)
    return found


def test_every_library_has_one_thread_inside_and_its_own_afterwards(searches):
    with threadpool_limits(limits=2):
        before = counts()
        assert before
        with one_thread():
            assert set(counts().values()) == {1}
            with one_thread():
                assert set(counts().values()) == {1}
            assert set(counts().values()) == {1}
        assert counts() == before
    assert searches == [1]


def test_without_a_context_it_stays_so(searches):
    with threadpool_limits(limits=2):
        limit()
        assert set(counts().values()) == {1}


def test_limits_are_taken_back_from_what_they_were_not_from_what_was_seen_first(searches):
    with threadpool_limits(limits=2), one_thread():
        pass
    with threadpool_limits(limits=1):
        with one_thread():
            pass
        assert set(counts().values()) == {1}


def test_an_error_takes_them_back_too(searches):
    with threadpool_limits(limits=2):
        before = counts()
        with pytest.raises(ValueError, match="inside"), one_thread():
            raise ValueError("inside")
        assert counts() == before


def test_libraries_are_looked_for_again_after_an_import(searches, monkeypatch):
    for _ in range(3):
        limit()
    monkeypatch.setitem(sys.modules, "a_library_with_a_blas_of_its_own", types.ModuleType("late"))
    for _ in range(3):
        limit()
    assert searches == [1, 1]


def test_threads_may_ask_at_once(searches):
    seen = []

    def work():
        with one_thread():
            seen.append(float((np.ones((64, 64)) @ np.ones((64, 64))).sum()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == [64.0**3] * 8


def test_a_thread_that_leaves_takes_nothing_back_from_one_that_is_inside(searches):
    entered, left = threading.Event(), threading.Event()

    def first():
        with one_thread():
            entered.wait(10)
        left.set()

    with threadpool_limits(limits=2):
        before = counts()
        thread = threading.Thread(target=first)
        thread.start()
        with one_thread():
            entered.set()
            assert left.wait(10)
            assert set(counts().values()) == {1}
        thread.join()
        assert counts() == before
