"""Flink, Beam's Flink job server and Prism, fetched by pip, Maven and Go into a folder that git ignores."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / ".runners"
"""Beside `.venv`; may be removed at any time when nothing runs."""

FLINK_VERSION, BEAM_VERSION = "2.2.1", "2.77.0"
_WHEELS = {
    "apache-flink": "a7e0e06e6e2a788b1e0c4f6225efe6a9bdcb6463db77080b99620c36c076cbab",
    "apache-flink-libraries": "74dc5546fbd9add8fbcdf1222a237e09491f9b80296241aef8676ec56f8e686e",
}
# Only scripts, configuration and jars are taken from the wheels, so those of one platform serve all.
_WHEEL_TAGS = ("--python-version", "3.11", "--platform", "manylinux2014_x86_64", "--only-binary", ":all:")
_JOB_SERVER = f"org.apache.beam:beam-runners-flink-2.2-job-server:{BEAM_VERSION}"
_PRISM = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{BEAM_VERSION}"
JAR_VARIABLE = "DAPPLE_FLINK_JOB_SERVER_JAR"
"""Names a job server jar that is used as it is."""
_TIMEOUT = 900.0


class UnavailableError(RuntimeError):
    """Something cannot be had on this machine; the message is one sentence."""


def flink_home() -> pathlib.Path:
    """Folder with Flink's `bin`, `conf` and `lib`, from its Python wheels; nothing of them is installed.

    Raises:
      UnavailableError: without Java, or if the wheels cannot be fetched.
    """
    _need("java", "Flink needs Java 17 or 11")
    home = CACHE / f"flink-{FLINK_VERSION}" / "pyflink"
    if not home.exists():
        with _new_folder(home.parent) as folder:
            wanted = folder / "wheels.txt"
            wanted.write_text(
                "".join(f"{name}=={FLINK_VERSION} --hash=sha256:{digest}\n" for name, digest in _WHEELS.items())
            )
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
            _run([*pip, *_WHEEL_TAGS, "--require-hashes", "-r", str(wanted), "-d", str(folder)], "Flink's wheels")
            for wheel in sorted(folder.glob("*.whl")):
                zipfile.ZipFile(wheel).extractall(folder)
                wheel.unlink()
            for script in (folder / "pyflink" / "bin").glob("*.sh"):
                script.chmod(0o755)
    return home


def job_server_jar() -> pathlib.Path:
    """Beam's job server for this version of Flink.

    Raises:
      UnavailableError: without Maven, or if the jar cannot be fetched.
    """
    given = os.environ.get(JAR_VARIABLE)
    if given:
        return pathlib.Path(given)
    _, artifact, version = _JOB_SERVER.split(":")
    jar = CACHE / f"job-server-{version}" / f"{artifact}-{version}.jar"
    if not jar.exists():
        maven = [_need("mvn", f"the job server needs Maven, or {JAR_VARIABLE}"), "-B", "-q", "-Dstyle.color=never"]
        with _new_folder(jar.parent) as folder:
            named = f"-Dartifact={_JOB_SERVER}"
            _run([*maven, "-U", "dependency:get", "-Dtransitive=false", named], _JOB_SERVER)
            _run([*maven, "dependency:copy", named, f"-DoutputDirectory={folder}"], _JOB_SERVER)
    return jar


def prism_binary() -> pathlib.Path:
    """The Prism runner, built by Go.

    Raises:
      UnavailableError: without Go, or if the sources cannot be fetched.
    """
    binary = CACHE / f"prism-{BEAM_VERSION}" / "prism"
    if not binary.exists():
        go = _need("go", "Prism needs Go")
        with _new_folder(binary.parent) as folder:
            _run([go, "install", _PRISM], "Prism", GOBIN=str(folder))
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
        """Moves it, unless somebody else was faster, or removes what there is."""
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
    """Runs a client of a package registry."""
    try:
        done = subprocess.run(
            words, env=os.environ | variables, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{what} could not be fetched within {_TIMEOUT:.0f} s.") from None
    if done.returncode:
        raise UnavailableError(f"{what} could not be fetched: {_reason(done.stdout + done.stderr)}")


def _reason(output: str) -> str:
    """What a client says first, without colors; of Maven's first line what is missing."""
    lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines() if line.strip()]
    reason = lines[0].rpartition("Couldn't download artifact: ")[2] if lines else "no reason given"
    return re.sub(r" \(https?://.*$", "", reason)
