"""Claims on stores: every order in which two launchers can ask the store, launchers that are killed, lost answers.

The store is a model that takes one request at a time, Beam's or obstore's. A scheduler decides whose request is next,
and all orders are tried: the code that claims is the one that runs. Launchers are killed on a server of Amazon's
protocol, too.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from dapple_dp.pipelines.run.folder import MANIFEST, RunFolder
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.files.claims import Claim, UnderWayError, alone_at
from dapple_dp.transforms.files.places import amazon, beam
from tests.scenes import object_store, stores

OUT = "bucket/out"


class _Killed(BaseException):
    """A process that is gone: nothing of it runs any more."""


class _Threads:
    """Threads that take turns: one runs until it is about to ask the store, then the next one on the list does.

    Attributes:
      choices: who had the turn at each step, and how many could have had it.
    """

    def __init__(self, orders: list[int]):
        self._orders = orders
        self.choices: list[tuple[int, int]] = []
        self._at = threading.local()
        self._free = threading.Semaphore(0)
        self._turns: dict[int, threading.Semaphore] = {}
        self._waiting: set[int] = set()

    def step(self) -> None:
        """A thread waits here for its turn."""
        number = getattr(self._at, "number", None)
        if number is not None:
            self._waiting.add(number)
            self._free.release()
            self._turns[number].acquire()

    def run(self, works: list[Callable[[], None]]) -> None:
        """Runs all to their ends."""

        def begin(number: int) -> None:
            self._at.number = number
            self.step()
            works[number]()
            self._free.release()

        threads = [threading.Thread(target=begin, args=(number,)) for number in range(len(works))]
        self._turns = {number: threading.Semaphore(0) for number in range(len(works))}
        for thread in threads:
            thread.start()
            self._free.acquire()
        while self._waiting:
            ready = sorted(self._waiting)
            chosen = self._orders[len(self.choices)] if len(self.choices) < len(self._orders) else 0
            self.choices.append((chosen, len(ready)))
            self._waiting.remove(ready[chosen])
            self._turns[ready[chosen]].release()
            self._free.acquire()
        for thread in threads:
            thread.join()


def all_orders(works: Callable[[], list[Callable[[], None]]], step: list[Any]) -> Iterator[None]:
    """Runs works in every order of their requests; yields after each."""
    orders: list[int] | None = []
    while orders is not None:
        threads = _Threads(orders)
        step[:] = [_deciding(threads.step)]
        threads.run(works())
        step.clear()
        yield
        chosen = [choice for choice, _ in threads.choices]
        while chosen and chosen[-1] + 1 == threads.choices[len(chosen) - 1][1]:
            chosen.pop()
        orders = [*chosen[:-1], chosen[-1] + 1] if chosen else None


class _Objects:
    """Objects of a store, by name below its root."""

    root = f"{stores.SCHEME}://"

    def names(self) -> list[str]:
        return stores.names()

    def content(self, name: str) -> bytes:
        return stores.Store.objects[self.root + name]

    def remove(self, *names: str) -> None:
        for name in names:
            stores.Store.objects.pop(self.root + name, None)


class _AmazonObjects(_Objects):
    """Objects of a bucket, by the store that the process asks."""

    root = "s3://"
    bucket = OUT.partition("/")[0]

    def names(self) -> list[str]:
        import obstore

        pages = obstore.list(amazon._store(self.bucket))
        return sorted(f"{self.bucket}/{each['path']}" for page in pages for each in page)

    def content(self, name: str) -> bytes:
        import obstore

        return bytes(obstore.get(amazon._store(self.bucket), name.removeprefix(f"{self.bucket}/")).bytes())

    def remove(self, *names: str) -> None:
        import obstore

        for name in set(names) & set(self.names()):
            obstore.delete(amazon._store(self.bucket), name.removeprefix(f"{self.bucket}/"))


_BEAM = {
    "exists": lambda _, path: [path],
    "open": lambda _, path, *__: [path],
    "create": lambda _, path, *__: [path],
    "delete": lambda _, deleted: deleted,
    "rename": lambda _, sources, targets: targets,
}
_AMAZON = {
    "exists": lambda _, path: [path],
    "get": lambda _, path: [path],
    "put": lambda _, path, __: [path],
    "put_new": lambda _, path, __: [path],
    "delete": lambda _, *deleted: deleted,
    "rename": lambda _, source, target: [target],
}
"""Paths that a request is about, by the method that makes it."""


@pytest.fixture
def steps(request):
    """A store's objects, and functions called before each request with its kind and paths.

    The store is Beam's model unless the test names another one: `memory` is obstore's, `server` speaks Amazon's
    protocol.
    """
    kind, found = getattr(request, "param", "model"), []

    def told(name, function, paths):
        def asked(*words):
            if found:
                found[0](name, paths(*words))
            return function(*words)

        return asked

    with contextlib.ExitStack() as stack:
        asked, methods = stores.Store, _BEAM
        if kind == "model":
            stack.enter_context(stores.store())
            conditional = {stores.SCHEME: told("put_new", stores._create, lambda path, _: [path])}
            stack.enter_context(mock.patch.dict(beam.CONDITIONAL, conditional))
        else:
            obstore_store = pytest.importorskip("obstore.store")
            asked, methods = amazon._AmazonStore, _AMAZON
            stack.enter_context(mock.patch.object(amazon, "_known", amazon._Known()))
            if kind == "memory":
                memory = obstore_store.MemoryStore()
                stack.enter_context(mock.patch.object(amazon, "_made", return_value=memory))
            else:
                pytest.importorskip("moto")
                stack.enter_context(object_store.object_store())
                object_store.client().create_bucket(Bucket=_AmazonObjects.bucket)
        for name, paths in methods.items():
            stack.enter_context(mock.patch.object(asked, name, told(name, getattr(asked, name), paths)))
        yield _Objects() if kind == "model" else _AmazonObjects(), found


def _deciding(step: Callable[[], None]) -> Callable[[str, Any], None]:
    """Calls a function before each request that decides who has an output: about the claim, and the manifest.

    To look for a claim and to read it count as one request, since a claim that goes in between is one that cannot be
    read.
    """

    def ask(kind: str, paths: Any) -> None:
        looked_at = f"/{OUT}/{MANIFEST}" if kind == "exists" else (".claim", f"/{MANIFEST}")
        if kind not in ("put", "create") and any(path.endswith(looked_at) for path in paths):
            step()

    return ask


class _Launcher:
    """One run of a job on the store: charged, worked, published."""

    def __init__(self, root: str, run: str, book: list[str]):
        self.folder = RunFolder(f"{root}{OUT}", run)
        self.run = run
        self.book = book
        self.error: BaseException | None = None
        self.works = self.published = False

    def __call__(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(self.folder.release)
                with self.folder.claimed():
                    self.book.append(self.run)
                    stack.enter_context(self.folder.opened())
                self.works = True
                self.folder.write("centers.parquet", self.run.encode())
                self.folder.publish({"run_id": self.run})
                self.works = False
                self.published = True
        except (ConfigError, FileNotFoundError, KeyError, _Killed) as error:
            self.works, self.error = False, error


@pytest.mark.parametrize(
    "steps",
    [pytest.param("model", marks=pytest.mark.slow), pytest.param("memory", marks=pytest.mark.nightly)],
    indirect=True,
)
@pytest.mark.parametrize("runs", [("a", "b"), ("a", "a")])
def test_one_of_two_launchers_is_charged_and_works_in_every_order(steps, runs):
    objects, step = steps
    tried = late = under_way = 0
    pair: list[_Launcher] = []
    book: list[str] = []

    def works() -> list[Callable[[], None]]:
        objects.remove(*objects.names())
        book.clear()
        pair[:] = [_Launcher(objects.root, run, book) for run in runs]
        return list(pair)

    for _ in all_orders(works, step):
        tried += 1
        published = [each for each in pair if each.published]
        refused = [each.error for each in pair if not each.published]
        assert len(book) == len(published) == 1, [(each.error, each.published) for each in pair]
        assert objects.content(f"{OUT}/centers.parquet") == published[0].run.encode()
        assert objects.names() == [f"{OUT}/centers.parquet", f"{OUT}/{MANIFEST}"]
        came_late = "must be a new or empty folder" in str(refused[0])
        late += came_late
        assert came_late or "must be used by one run at a time" in str(refused[0])
        # A claim that has gone before it could be read is another run's, as far as one knows.
        under_way += isinstance(refused[0], UnderWayError)
    assert tried > 100
    assert 0 < late < tried
    assert (under_way > tried // 2) == (runs[0] == runs[1])


def _killed_at(step, number):
    """Has the launcher that is at work killed before its request of this number, whatever it is about."""
    left = [number]

    def ask(*_: Any) -> None:
        if left[0] == 0:
            raise _Killed
        left[0] -= 1

    step[:] = [ask]


@pytest.mark.parametrize("steps", ["model", "memory", pytest.param("server", marks=pytest.mark.slow)], indirect=True)
def test_a_claim_of_a_killed_launcher_stays_and_nothing_is_charged_a_second_time(steps):
    objects, step = steps
    for number in range(100):
        objects.remove(*objects.names())
        book: list[str] = []
        first = _Launcher(objects.root, "a", book)
        _killed_at(step, number)
        first()
        step.clear()
        if first.error is None:
            break
        again, other = _Launcher(objects.root, "a", book), _Launcher(objects.root, "b", book)
        claimed = f"{OUT}.claim" in objects.names()
        again()
        other()
        assert len(book) == 1 or (claimed and not book)
        if claimed:
            assert isinstance(again.error, UnderWayError)
            assert f"or if it was killed, remove {objects.root}{OUT}.claim." in str(other.error)
    assert number > 15


def test_a_launcher_whose_claim_was_removed_publishes_nothing(steps):
    """Until its last look: the moves that follow it are not one step on a store."""
    root, step = steps[0].root, steps[1]
    outcomes = []
    for number in range(100):
        for run in ("a", "b"):
            stores.Store.objects.clear()
            book: list[str] = []
            stale, other, left = _Launcher(root, "a", book), _Launcher(root, run, book), [number]

            def ask(left=left, other=other) -> None:
                left[0] -= 1
                if left[0] == -1 and stores.Store.objects.pop(f"{root}{OUT}.claim", None) is not None:
                    step.clear()
                    other()

            step[:] = [_deciding(ask)]
            stale()
            step.clear()
            if other.published:
                outcomes.append((stale.published, stores.Store.objects[f"{root}{OUT}/centers.parquet"].decode() == run))
    assert len(outcomes) > 8
    refused = [published for published, _ in outcomes]
    first = refused.index(True) if True in refused else len(refused)
    assert first > 8, outcomes
    assert all(kept for published, kept in outcomes if not published)


def test_an_attempt_whose_claim_was_removed_leaves_the_files_of_the_next_one_alone(steps):
    root = steps[0].root
    stale, other = RunFolder(f"{root}{OUT}", "a"), RunFolder(f"{root}{OUT}", "a")
    with stale.claimed(), stale.opened():
        del stores.Store.objects[f"{root}{OUT}.claim"]
        with other.claimed():
            other.write("centers.parquet", b"of the next one")
            with pytest.raises(UnderWayError, match="was removed while the run was working"):
                stale.publish({})
            stale.discard()
            stale.release()
            assert stores.names() == [f"{OUT}.claim", f"{OUT}.partial-a/centers.parquet"]
            other.release()


def test_an_answer_that_is_lost_is_no_other_claim(steps, monkeypatch):
    """The library asks again, and the store says that something is there: what the first request made."""
    root = steps[0].root
    honest, lost = stores._create, [True]

    def create(path, content):
        honest(path, content)
        if lost and lost.pop():
            honest(path, content)

    monkeypatch.setitem(beam.CONDITIONAL, stores.SCHEME, create)
    Claim.taken(f"{root}x.claim", "a", "--output", "x")
    where = rf"which another run has claimed at 20.* on .*, process {os.getpid()}; wait for it to end"
    with pytest.raises(ConfigError, match=where):
        Claim.taken(f"{root}x.claim", "b", "--output", "x")


def test_a_request_that_fails_leaves_no_claim(steps, monkeypatch):
    root = steps[0].root
    honest = stores._create

    def create(path, content):
        honest(path, content)
        raise OSError("the connection is gone")

    monkeypatch.setitem(beam.CONDITIONAL, stores.SCHEME, create)
    with pytest.raises(ConfigError, match="No file can be created in "):
        Claim.taken(f"{root}x.claim", "a", "--output", "x")
    assert stores.names() == []


def test_a_store_that_knows_no_conditions_is_refused(steps, monkeypatch):
    root = steps[0].root
    monkeypatch.setitem(beam.CONDITIONAL, stores.SCHEME, stores.Store.objects.__setitem__)
    with pytest.raises(ConfigError, match="overwrites an object that another run has created"):
        Claim.taken(f"{root}x.claim", "a", "--output", "x")
    assert stores.names() == []


def test_a_place_is_of_one_job_on_a_store_and_on_a_disk(steps, tmp_path):
    for folder in (f"{steps[0].root}bucket/exchange", str(tmp_path / "exchange")):
        second = alone_at(folder, "b", "--exchange", folder)
        refused = pytest.raises(ConfigError, match=r"must be used by one (run|job) at a time")
        with alone_at(folder, "a", "--exchange", folder), refused, second:
            pass
        with alone_at(folder, "b", "--exchange", folder):
            pass
    assert stores.names() == []
