"""Random bytes in a test follow from its name, since all that is random in Dapple comes from one place."""

import ast
import os
import pathlib
import secrets

from dapple_dp.transforms.numerics.reports.coins import SystemCoins
from dapple_dp.transforms.privacy import key_files
from tests.scenes import repeatable_bytes
from tests.scenes.repeatable_bytes import bytes_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULES = [
    path for floor in ("schemas", "transforms", "pipelines", "dapple_dp") for path in (ROOT / floor).rglob("*.py")
]


def drawn(folder: pathlib.Path) -> tuple[object, ...]:
    """All kinds of draws that Dapple makes."""
    key_files.create_key(str(folder / "key"))
    key = key_files.read_key(str(folder / "key"))
    (folder / "key").unlink()
    words = SystemCoins(2).words(0, 3).tobytes()
    return key, words, secrets.token_hex(8), secrets.randbits(64), secrets.token_bytes()


def test_one_name_gives_the_same_bytes_and_another_one_others(tmp_path):
    found = []
    for name in ("a", "a", "b"):
        with bytes_of(name):
            found.append(drawn(tmp_path))
    assert found[0] == found[1]
    assert not set(found[0]) & set(found[2])


def test_no_two_calls_give_the_same_bytes():
    assert len({secrets.token_bytes(16) for _ in range(1000)}) == 1000


def test_a_fixture_leaves_the_bytes_of_the_test_as_they_are():
    with bytes_of("test"):
        first = [secrets.token_bytes(8) for _ in range(2)]
    with bytes_of("test"):
        again = [secrets.token_bytes(8)]
        with bytes_of("fixture"):
            secrets.token_bytes(8)
        again.append(secrets.token_bytes(8))
    assert first == again


def test_a_process_that_was_forked_draws_from_the_system(monkeypatch):
    """Or it would repeat what its parent draws, and two of them would give one name to their files."""
    found = []
    for owner in (os.getpid(), os.getpid(), -1):
        monkeypatch.setattr(repeatable_bytes, "_owner", owner)
        with bytes_of("a"):
            found.append((secrets.token_bytes(16), secrets.randbits(128)))
    assert found[0] == found[1]
    assert not set(found[0]) & set(found[2])


def elsewhere(path: pathlib.Path) -> set[str]:
    """Sources of randomness that a module uses besides `secrets` and seeded generators."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name.partition(".")[0] for alias in node.names} if isinstance(node, ast.Import) else set()
            found |= (names | {getattr(node, "module", None)}) & {"random"}
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            unseeded = name.endswith("default_rng") and not node.args
            found |= {name} if unseeded or name in ("os.urandom", "os.getrandom") else set()
            # The fifth kind is a digest of a name.
            found |= {name} if name.rpartition(".")[2] in ("uuid1", "uuid4") else set()
    return found


def test_all_that_is_random_comes_from_secrets():
    """So that a test whose keys nobody writes has the same noise in every run."""
    assert {str(path.relative_to(ROOT)): names for path in MODULES if (names := elsewhere(path))} == {}
