"""Limits of control groups, read from folders that are laid out as the system lays them out."""

import os
import resource
import subprocess
import sys

import joblib
import pytest

from dapple_dp.pipelines.run.failures import describe_unexpected, original_error
from dapple_dp.pipelines.tables import resources
from dapple_dp.schemas.errors import RunnerError
from dapple_dp.transforms.rounds import machine, row_cache

MIB = 1 << 20


class System:
    """Folders of a process, of its groups and of the machine's memory."""

    def __init__(self, root):
        self.process, self.groups, self.info = root / "self", root / "groups", root / "meminfo"
        self.process.mkdir()
        self.groups.mkdir()
        self.info.write_text(f"MemTotal: 99 kB\nMemAvailable: {4096 * 1024} kB\n")

    def of(self, own, mounts):
        (self.process / "cgroup").write_text("".join(f"{line}\n" for line in own))
        lines = [
            f"31 23 0:28 {root} {self.groups}{place} rw - {kind} {kind} {words}\n"
            for root, place, kind, words in mounts
        ]
        (self.process / "mountinfo").write_text("30 1 0:1 / /proc rw - proc proc rw\n" + "".join(lines))

    def put(self, path, **files):
        folder = self.groups / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(f"{text}\n")

    @property
    def free(self):
        return machine.free_memory(self.process, self.info)

    @property
    def cores(self):
        return machine.cores(self.process)


@pytest.fixture
def system(tmp_path, monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    return System(tmp_path)


def test_the_tightest_group_on_the_way_up_counts(system):
    system.of(["0::/a/b"], [("/", "", "cgroup2", "rw")])
    system.put(
        "a",
        memory__max=900 * MIB,
        memory__current=500 * MIB,
        memory__stat=f"inactive_file {100 * MIB}",
        cpu__max="150000 100000",
    )
    system.put("a/b", memory__max="max", memory__current=MIB, cpu__max="max 100000")
    assert (system.free, system.cores) == (500 * MIB, 2)
    system.put("a/b", memory__max=300 * MIB, memory__current=100 * MIB, cpu__max="50000 100000")
    assert (system.free, system.cores) == (200 * MIB, 1)
    system.put("a/b", memory__max=50 * MIB)
    assert system.free == 0


def test_groups_of_the_first_version(system):
    system.of(
        ["4:memory:/service/x", "3:cpu,cpuacct:/service", "0::/"],
        [
            ("/", "/memory", "cgroup", "rw,memory"),
            ("/", "/cpu", "cgroup", "rw,cpu,cpuacct"),
            ("/", "/two", "cgroup2", "rw"),
        ],
    )
    system.put("memory", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=MIB)
    system.put(
        "memory/service/x",
        memory__limit_in_bytes=800 * MIB,
        memory__usage_in_bytes=700 * MIB,
        memory__stat=f"total_inactive_file {50 * MIB}\ninactive_file 1",
    )
    system.put("cpu/service", cpu__cfs_quota_us=250_000, cpu__cfs_period_us=100_000)
    assert (system.free, system.cores) == (150 * MIB, 3)
    system.put("cpu/service", cpu__cfs_quota_us=-1)
    assert system.cores == 8


def test_a_container_whose_mount_begins_at_its_own_group(system):
    """The path names folders that are not mounted."""
    system.of(["4:memory:/docker/abc"], [("/docker/abc", "", "cgroup", "rw,memory")])
    system.put("", memory__limit_in_bytes=600 * MIB, memory__usage_in_bytes=0)
    assert system.free == 600 * MIB
    system.of(["0::/../other"], [("/", "", "cgroup2", "rw")])
    system.put("", memory__max=500 * MIB, memory__current=0)
    assert system.free == 500 * MIB


def test_without_groups_the_machine_counts_and_without_a_word_nothing_is_known(system):
    assert (system.free, system.cores) == (4096 * MIB, 8)
    system.info.unlink()
    assert system.free is None
    system.of(["0", "::", "a:b"], [])
    (system.process / "mountinfo").write_bytes(b"\xff\n- cgroup2")
    assert (system.free, system.cores) == (None, 8)


def test_an_address_space_that_is_limited_counts(system, monkeypatch):
    (system.process / "status").write_text("VmSize:\t 1048576 kB\n")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1280 * MIB, 1280 * MIB))
    assert system.free == 256 * MIB


def test_the_size_of_the_cache_follows_from_free_memory(monkeypatch):
    for free, kept in ((None, 16 * MIB), (4096 * MIB, 16 * MIB), (40 * MIB, 10 * MIB), (0, 0)):
        monkeypatch.setattr(machine, "free_memory", lambda free=free: free)
        assert row_cache.memory_of(8 << 30) == kept
    assert row_cache.memory_of(40) == 0


def test_threads_are_as_many_as_cores_if_memory_is_enough(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 4)
    for free, threads in ((None, 4), (8192 * MIB, 4), (300 * MIB, 2), (10 * MIB, 1)):
        monkeypatch.setattr(machine, "free_memory", lambda free=free: free)
        assert machine.threads(64) == threads
    assert machine.threads(1) == 1


def test_the_plan_is_one_line_without_a_number_of_rows(monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 200 * MIB)
    monkeypatch.setattr(machine, "free_disk", lambda _: 300 * MIB)
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(row_cache, "_folder", lambda: "/var/tmp")
    limits = row_cache.WorkerLimits(run="r", cores=2, cache_bytes=8 << 30)
    assert resources._plan(limits, chosen=False) == (
        "this job uses 2 threads (all available cores) and keeps rows in memory, up to 16 MiB of 200 available, then "
        "up to 300 MiB in /var/tmp, a sixth of which stays free"
    )
    none = row_cache.WorkerLimits(run="r", cores=1)
    assert "1 thread (--cores) and reads rows again in every round" in resources._plan(none, chosen=True)


def test_a_sixth_of_a_disk_stays_free(tmp_path, monkeypatch):
    for available, free in ((960, 800), (260, 100), (100, 0)):
        found = os.statvfs_result((1 << 30, 1 << 30, 960, 0, available, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _, found=found: found)
        assert machine.free_disk("/") == free << 30
        assert machine.free_disk("/", left=False) == available << 30


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("(1234, 2)"),
        RuntimeError("Traceback\n  File x\nMemoryError"),
        RuntimeError("... \\nnumpy._core._exceptions._ArrayMemoryError: Unable to allocate 1234 MiB"),
        RuntimeError("pyarrow.lib.ArrowMemoryError: malloc of size 1234 failed"),
    ],
)
def test_a_lack_of_memory_is_recognized_by_its_sentence(error):
    assert str(original_error(error)) == machine.NO_MEMORY
    if isinstance(error, MemoryError):
        assert describe_unexpected(error) == machine.NO_MEMORY


def test_a_word_about_memory_is_no_lack_of_it():
    assert original_error(RuntimeError("the MemoryErrors of others")) is None


_GROW = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from dapple_dp.pipelines.run.failures import original_error
try:
    bytearray(1 << 31)
except MemoryError as error:
    sys.exit(str(original_error(error)))
"""


def test_a_process_that_gets_no_more_memory_says_so():
    ended = subprocess.run([sys.executable, "-c", _GROW], capture_output=True, text=True, timeout=60)
    assert ended.stderr.strip() == machine.NO_MEMORY


def test_rows_are_not_copied_to_a_disk_without_room(tmp_path, monkeypatch):
    from dapple_dp.transforms.tables.listing import FileList, FoundFile, OneListing

    (tmp_path / "part.parquet").write_bytes(b"PAR1" * 100)
    listed = OneListing(lambda: FileList.of([FoundFile(str(tmp_path / "part.parquet"))], "data.path"))
    resources.check_room(listed, str(tmp_path))
    resources.check_room(None, str(tmp_path))
    monkeypatch.setattr(machine, "free_disk", lambda _, left: 399)
    with pytest.raises(RunnerError, match="The disk of --output is too small for a copy") as caught:
        resources.check_room(listed, str(tmp_path))
    assert "399" not in str(caught.value)
    resources.check_room(listed, "s3://bucket/out")
