"""Flink, its job server by Beam, Prism, Kafka and an S3 server, fetched by pip, Maven and Go into an ignored folder."""

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / ".runners"
"""Beside `.venv`; may be removed at any time when nothing runs."""

FLINK_VERSION = "1.19.3"
_PYPI = {
    "apache-flink": "ff572c6ffa3867c21b8a455aefb50c53c91973fd0408df594ca26cb0a7bebc77",
    "apache-flink-libraries": "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60",
}
# Only scripts, configuration and jars are taken from them, so those of one platform serve all.
_PLATFORM = ("--python-version", "3.11", "--platform", "manylinux2014_x86_64")
_RUNNER_GROUP, _RUNNER, _RUNNER_VERSION = "org.apache.beam", "beam-runners-flink-1.19", "2.62.0"
_RUNNER_DIGEST = "1d3dafed98a9fa242d8d15d6e73b16242f884711011ee989c750ceac190265e8"
_PROJECT = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>dapple</groupId><artifactId>jars</artifactId><version>1</version><dependencies><dependency>
<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>
</dependency></dependencies></project>
"""
_KAFKA_GROUP, _KAFKA, _KAFKA_VERSION = "org.apache.kafka", "kafka_2.13", "3.9.1"
_KAFKA_DIGEST = "ad2f78e4b212c14ec3a59e095eb8ef39d59fdae100d3eb13074fb0e4ab481bae"
_PRISM_VERSION = "2.77.0"
_PRISM = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{_PRISM_VERSION}"
_S3_VERSION = "1.8.0"
_S3 = f"github.com/versity/versitygw/cmd/versitygw@v{_S3_VERSION}"
_MAIN_CLASS = "org.apache.beam.runners.flink.FlinkJobServerDriver"
_TIMEOUT = 2400.0
"""Seconds for a client of a registry; Prism is compiled as well, which takes two busy cores a quarter of an hour."""


class FlinkRunner(NamedTuple):
    """Beam's Flink runner.

    Attributes:
      jars: folder with its jar and those of all that it needs.
      server: the same as one jar, whose main class is the job server. A job server sends all of its class path with
        every job, and a file takes Flink some 75 ms however small it is.
    """

    jars: pathlib.Path
    server: pathlib.Path


class UnavailableError(RuntimeError):
    """Something cannot be had on this machine; the message is one sentence."""


def flink_home() -> pathlib.Path:
    """Folder with Flink's `bin`, `conf` and `lib`, from its Python packages; nothing of them is installed.

    Raises:
      UnavailableError: without Java, or if the packages cannot be fetched.
    """
    _need("java", "Flink needs Java 17 or 11")
    home = CACHE / f"flink-{FLINK_VERSION}" / "pyflink"
    if not home.exists():
        with _new_folder(home.parent) as folder:
            wanted = folder / "packages.txt"
            wanted.write_text(
                "".join(f"{name}=={FLINK_VERSION} --hash=sha256:{digest}\n" for name, digest in _PYPI.items())
            )
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
            pip += [*_PLATFORM, "--no-build-isolation", "--require-hashes", "-r", str(wanted), "-d", str(folder)]
            _run(pip, "Flink's Python packages")
            _unpack_flink(folder)
    return home


def _unpack_flink(folder: pathlib.Path) -> None:
    """Scripts and configuration out of the wheel, jars out of the source package."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (libraries,) = folder.glob("apache-flink-libraries-*/deps")
    shutil.copytree(libraries / "bin", folder / "pyflink" / "bin", dirs_exist_ok=True)
    (libraries / "lib").rename(folder / "pyflink" / "lib")
    (folder / "pyflink" / "plugins").mkdir(exist_ok=True)
    shutil.rmtree(libraries.parent)
    wheel.unlink()
    source.unlink()
    for script in (folder / "pyflink" / "bin").glob("*.sh"):
        script.chmod(0o755)


def flink_runner() -> FlinkRunner:
    """Beam's runner for this version of Flink.

    Raises:
      UnavailableError: without Maven or a JDK, or if the jars cannot be fetched or are not those that were tested.
    """
    place = CACHE / f"{_RUNNER}-{_RUNNER_VERSION}"
    if not place.exists():
        maven = _need("mvn", "Beam's Flink runner needs Maven")
        with _new_folder(place) as folder:
            _copy_jars(maven, folder / "lib", (_RUNNER_GROUP, _RUNNER, _RUNNER_VERSION), _RUNNER_DIGEST)
            _join_jars(folder / "lib", folder / "job-server.jar")
    _need("javac", "Beam's job server on loopback is compiled from a source of ours and needs a JDK")
    return FlinkRunner(place / "lib", place / "job-server.jar")


def kafka_jars() -> pathlib.Path:
    """Folder with the jars of a Kafka broker.

    Raises:
      UnavailableError: without Java or Maven, or if the jars cannot be fetched or are not those that were tested.
    """
    _need("java", "Kafka needs Java 11 or later")
    place = CACHE / f"{_KAFKA}-{_KAFKA_VERSION}"
    if not place.exists():
        maven = _need("mvn", "Kafka is fetched by Maven")
        with _new_folder(place) as folder:
            _copy_jars(maven, folder / "lib", (_KAFKA_GROUP, _KAFKA, _KAFKA_VERSION), _KAFKA_DIGEST)
    return place / "lib"


def _copy_jars(maven: str, folder: pathlib.Path, artifact: tuple[str, str, str], digest: str) -> None:
    """Fetches an artifact and all that it needs into a new folder.

    Raises:
      UnavailableError: if that fails, or the jars are not those of a digest.
    """
    group, name, version = artifact
    folder.mkdir()
    with tempfile.TemporaryDirectory() as project:
        (pathlib.Path(project) / "pom.xml").write_text(_PROJECT.format(group=group, name=name, version=version))
        words = [maven, "-B", "-q", "-U", "-Dstyle.color=never", "-f", project, "dependency:copy-dependencies"]
        _run([*words, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"], f"{name} {version}")
    if _digest(folder) != digest:
        raise UnavailableError(f"{name} {version} came with other jars than those that were tested.")


def _join_jars(jars: pathlib.Path, target: pathlib.Path) -> None:
    """One jar of many: of a file that several have the first is taken, and lists of services are put together."""
    manifest = f"Manifest-Version: 1.0\nMain-Class: {_MAIN_CLASS}\nMulti-Release: true\n\n"
    files = {"META-INF/MANIFEST.MF"}
    services: dict[str, list[bytes]] = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as joined:
        joined.writestr("META-INF/MANIFEST.MF", manifest)
        for jar in sorted(jars.glob("*.jar")):
            with zipfile.ZipFile(jar) as archive:
                for name in archive.namelist():
                    # Folders go, and signatures, which hold for the jar that they came with.
                    if name in files or name.endswith(("/", ".SF", ".RSA", ".DSA")):
                        continue
                    if name.startswith("META-INF/services/"):
                        services.setdefault(name, []).append(archive.read(name))
                    else:
                        files.add(name)
                        joined.writestr(name, archive.read(name))
        for name, lists in services.items():
            joined.writestr(name, b"\n".join(lists))


def add_to_flink(home: pathlib.Path, jars: pathlib.Path) -> None:
    """Puts the runner's classes among Flink's own, where jobs find them loaded; Flink has some of the jars itself."""
    for jar in jars.glob("*.jar"):
        if not jar.name.startswith(("flink-", "slf4j-")):
            with contextlib.suppress(FileExistsError):
                os.link(jar, home / "lib" / jar.name)


def _digest(folder: pathlib.Path) -> str:
    """SHA-256 of the names and contents of files."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def prism_binary() -> pathlib.Path:
    """The Prism runner, built by Go.

    Raises:
      UnavailableError: without Go, or if the sources cannot be fetched.
    """
    return _built("prism", _PRISM_VERSION, _PRISM)


def s3_server() -> pathlib.Path:
    """The gateway versitygw, which serves folders as buckets of S3, built by Go.

    Raises:
      UnavailableError: without Go, or if the sources cannot be fetched.
    """
    return _built("versitygw", _S3_VERSION, _S3)


def _built(name: str, version: str, package: str) -> pathlib.Path:
    """A command that Go builds."""
    binary = CACHE / f"{name}-{version}" / name
    if not binary.exists():
        go = _need("go", f"{name} needs Go")
        with _new_folder(binary.parent) as folder:
            _run([go, "install", package], name, GOBIN=str(folder))
    return binary


class _new_folder:  # noqa: N801 - used like a function
    """A temporary folder that takes its final place when everything in it is complete."""

    def __init__(self, place: pathlib.Path):
        self._place = place

    def __enter__(self) -> pathlib.Path:
        """Makes it beside its place."""
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{self._place.name}.", dir=self._place.parent))
        return self._folder

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Moves it, unless another process was faster, or removes the part."""
        try:
            if kind is None:
                os.rename(self._folder, self._place)
        except OSError:
            if not self._place.exists():
                raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def _need(command: str, why: str) -> str:
    """Path of a command."""
    found = shutil.which(command)
    if found is None:
        raise UnavailableError(f"{why}, and there is no `{command}` on PATH.")
    return found


def _run(words: list[str], what: str, **variables: str) -> None:
    """Runs a client of a package registry, a second time if it fails: that may be a fault of the network."""
    try:
        for _ in range(2):
            done = subprocess.run(
                words, env=os.environ | variables, capture_output=True, text=True, timeout=_TIMEOUT, check=False
            )
            if not done.returncode:
                return
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{what} could not be fetched and built within {_TIMEOUT / 60:.0f} minutes.") from None
    raise UnavailableError(f"{what} could not be fetched: {_reason(done.stdout + done.stderr)}")


def _reason(output: str) -> str:
    """What a client says first, without colors; of Maven's first line what is missing."""
    lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines() if line.strip()]
    reason = re.sub(
        r"^.*Could not resolve dependencies for project \S+: ", "", lines[0] if lines else "no reason given"
    )
    return re.sub(r" \(https?://.*$| in central .*$", "", reason)
