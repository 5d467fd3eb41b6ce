"""Nothing waits forever: every call of the packages that may wait has a limit, or stands here with the reason."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "transforms", "pipelines", "dapple_dp")

FOREVER = (99, "")
LIMITS = {
    # what is called: the number of words before the one that limits it, and its name
    "wait": (0, "timeout"),
    "futures.wait": (1, "timeout"),
    "join": (0, "timeout"),
    "get": (0, "timeout"),
    "result": (0, "timeout"),
    "acquire": (1, "timeout"),
    "recv": FOREVER,
    "recv_bytes": FOREVER,
    "accept": FOREVER,
    "select.select": (3, "timeout"),
    "poll": (0, "timeout"),
    "consume": (1, "timeout"),
    "communicate": (1, "timeout"),
    "subprocess.run": (99, "timeout"),
    "subprocess.call": (99, "timeout"),
    "check_output": (99, "timeout"),
    "check_call": (99, "timeout"),
    "Popen": FOREVER,
    "system": FOREVER,
    "waitpid": FOREVER,
    "readline": FOREVER,
    "input": FOREVER,
    "urlopen": (2, "timeout"),
    "HTTPConnection": (99, "timeout"),
    "HTTPSConnection": (99, "timeout"),
    "create_connection": (1, "timeout"),
    "sqlite3.connect": (1, "timeout"),
    "wait_until_finish": (0, "duration"),
    "flock": FOREVER,
    "lockf": FOREVER,
    "shutdown": FOREVER,
    "ThreadPoolExecutor": FOREVER,
    "ProcessPoolExecutor": FOREVER,
    "get_watermark_offsets": (99, "timeout"),
    "offsets_for_times": (99, "timeout"),
    "list_topics": (1, "timeout"),
    "_consumer.commit": FOREVER,
    "_received": FOREVER,
    "sleep": FOREVER,
    "pause": FOREVER,
}
"""Calls that wait. One that sleeps waits as long as the loop around it."""
_FILES = "its threads read files: a library of a store limits each request, a disk answers or the system says why not"
REASONS = {
    ("schemas/quiet_imports.py", "_ALONE.acquire"): "blocks nobody",
    ("pipelines/run/on_flink.py", "time.sleep"): "the loop has an end",
    ("pipelines/kmeans/plan/file_digests.py", "concurrent.futures.ThreadPoolExecutor"): _FILES,
    ("pipelines/kmeans/plan/file_digests.py", "found.result"): _FILES,
    ("pipelines/kmeans/plan/file_digests.py", "rest.result"): _FILES,
    ("pipelines/kmeans/plan/file_digests.py", "pool.shutdown"): _FILES,
    ("pipelines/ledger/postgres.py", "time.sleep"): "the loop has an end",
    ("pipelines/masked/party_run.py", "seat.patience.pause"): "the loop counts what it waits, and has an end",
    ("pipelines/kmeans/stream/job.py", "sys.stdin.readline"): "a person is asked, who may take their time",
    ("pipelines/plan/starter.py", "sys.stdin.readline"): "a person is asked, who may take their time",
    ("pipelines/run/folder.py", "time.sleep"): "the loop has an end",
    ("pipelines/run/graph.py", "running.wait_until_finish"): "rows are added up, for days if need be; Ctrl-C cancels",
    ("pipelines/run/watched_worker.py", "self.worker_thread.join"): "a daemon that nobody waits for watches a process",
    ("pipelines/run/watched_worker.py", "time.sleep"): "the caller that waits for the thread has a limit",
    (
        "pipelines/tables/arrivals/broker.py",
        "self._consumer.commit",
    ): "the library gives up on its own (session.timeout.ms)",
    ("pipelines/tables/arrivals/broker.py", "time.sleep"): "the loop has an end",
    ("transforms/clustered_fl/rounds.py", "self._shared.acquire"): "makes an object, or finds it",
    ("transforms/core/loop.py", "self._unused.acquire"): "blocks nobody",
    ("transforms/files/places/amazon.py", "time.sleep"): "the loop has an end",
    ("transforms/files/stores.py", "_AHEAD.get"): "a variable of this thread",
    ("pipelines/run/run_keys.py", "_LEFT.get"): "a variable of this context",
    ("transforms/files/stores.py", "concurrent.futures.ThreadPoolExecutor"): _FILES,
    ("transforms/files/stores.py", "pending.result"): _FILES,
    ("transforms/files/stores.py", "pool.shutdown"): _FILES,
    ("transforms/rounds/shard_sums.py", "concurrent.futures.ThreadPoolExecutor"): _FILES,
    ("transforms/rounds/shard_sums.py", "each.result"): _FILES,
    ("transforms/tables/listing.py", "concurrent.futures.ThreadPoolExecutor"): _FILES,
    ("transforms/tables/listing.py", "sqlite3.connect"): "a database of this process alone",
    ("transforms/tables/shard_rows.py", "concurrent.futures.ThreadPoolExecutor"): _FILES,
    ("transforms/tables/shard_rows.py", "pending.result"): _FILES,
}
"""Waits without a limit of their own: why that is no wait forever."""


def waits(source: str) -> list[str]:
    """Calls without a limit, though it may wait."""
    return [name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and (name := _endless(node))]


def _endless(call: ast.Call) -> str:
    name = ast.unparse(call.func)
    *_, owner, last = ("", *name.rsplit(".", 2))
    limit = LIMITS.get(f"{owner}.{last}", LIMITS.get(last))
    if limit is None or "LOCK_NB" in ast.unparse(call):
        return ""
    place, word = limit
    given = [*call.args[place:], *(each.value for each in call.keywords if each.arg == word)]
    return "" if given and ast.unparse(given[0]) not in ("None", "-1") else name


def test_every_wait_has_a_limit_or_a_reason():
    found = {
        (str(path.relative_to(ROOT)), name)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in waits(path.read_text())
    }
    assert found == set(REASONS)


@pytest.mark.parametrize(
    "source",
    [
        *("event.wait()", "event.wait(None)", "futures.wait(all)", "thread.join()", "queue.get()", "pipe.recv()"),
        *("select.select(a, b, c)", "poller.poll()", "consumer.poll(-1)", "child.communicate(raw)", "lock.acquire()"),
        *("subprocess.run(words, check=True)", "subprocess.Popen(words)", "os.waitpid(1, 0)", "future.result()"),
        *("sqlite3.connect(path)", "urllib.request.urlopen(url)", "fcntl.flock(file, fcntl.LOCK_EX)", "input()"),
        *("running.wait_until_finish()", "consumer.list_topics()", "thread.join(timeout=None)", "f(a)(b).wait()"),
    ],
)
def test_a_wait_without_a_limit_is_found(source):
    assert len(waits(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        *("event.wait(1)", "futures.wait(all, 2)", "thread.join(timeout=5)", "', '.join(words)", "settings.get(name)"),
        *("subprocess.run(words, timeout=9)", "sqlite3.connect(path, timeout=3)", "urlopen(url, timeout=_SECONDS)"),
        *("fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "os.path.join(a, b)", "table.select(names)"),
    ],
)
def test_a_wait_with_a_limit_passes(source):
    assert waits(source) == []
