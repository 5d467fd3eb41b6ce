"""`dapple verify`: one run, altered in every way a test can think of; each refusal names the file."""

import hashlib
import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dapple_dp import DPKMeans
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.run.folder import manifest_digest
from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes import lake
from tests.scenes.ledgers import new_ledger

DEPLOYMENT = {"approved_by": "Ann <b>", "release_schedule": "every night", "intended_use": "maps"}
REASONS = {"clipping.norm": "the radius of last year's public file"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of one job, charged to one ledger."""
    folder = tmp_path_factory.mktemp("runs")
    ledger = new_ledger(folder, Limit(epsilon=20.0, delta=1e-5))
    data, server = lake.write_lake(folder / "lake", lake.mixture(90)), lake.write_server(folder / "server.parquet")
    settings = {"ledger": ledger.path, "data__name": "census", "deployment": DEPLOYMENT, "justification": REASONS}
    (folder / "job.yaml").write_text(yaml.safe_dump(lake.job(data, server, **settings)))
    for run in ("a", "b"):
        words = ("--config", str(folder / "job.yaml"), "--output", str(folder / run), "--run_id", run)
        done = lake.run_command("fit", *words)
        assert done.code == 0, done.err
    return folder


@pytest.fixture
def copy(runs, tmp_path):
    return shutil.copytree(runs / "a", tmp_path / "a")


def verify(folder, *flags):
    return lake.run_command("verify", str(folder), *flags)


def refused(folder, *flags):
    """The one sentence of a run that is not whole."""
    done = verify(folder, *flags)
    assert (done.code, done.out, done.err.count("\n")) == (5, "", 1)
    return done.err


def edit_json(folder, name, change, *, reseal=False):
    """Changes a JSON file, and recomputes all digests if asked to."""
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))
    if reseal:
        seal(folder)


def seal(folder):
    """The manifest of someone who knows how it is made."""
    manifest = json.loads((folder / "run.json").read_text())
    manifest["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in manifest["files"]}
    manifest["manifest_digest"] = manifest_digest(manifest)
    (folder / "run.json").write_text(json.dumps(manifest))


def keys(folder):
    """Paths of a private and a public key, in PEM."""
    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    folder.mkdir()
    (folder / "private.pem").write_bytes(private)
    (folder / "public.pem").write_bytes(public)
    return str(folder / "private.pem"), str(folder / "public.pem")


def test_a_run_is_whole(runs):
    done = verify(runs / "a", "--ledger", str(runs / "ledger.sqlite"))
    found = json.loads(done.out.splitlines()[-1])
    stated = json.loads((runs / "a" / "privacy.json").read_text())
    assert (done.code, found["verified"], found["run_id"], found["files"]) == (0, True, "a", 5)
    assert (found["epsilon"], found["delta"]) == (stated["epsilon"], stated["delta"])
    assert "its entry is that of the run" in done.out


def test_the_folder_says_what_was_run(runs):
    manifest = json.loads((runs / "b" / "run.json").read_text())
    assert manifest["settings"]["data"]["name"] == "census"
    assert manifest["settings"]["justification"] == REASONS
    assert manifest["started"] < manifest["started"][:4] + "-12-32"
    before, after = manifest["ledger"]["before"], manifest["ledger"]["after"]
    assert 20.0 > before["epsilon"] > after["epsilon"] > 0.0
    entry = yaml.safe_load((runs / "b" / "deployment.yaml").read_text())["deployment"]
    assert entry["administrative"]["approved_by"] == "Ann <b>"
    assert entry["basic"]["intended_use"] == "maps"
    assert entry["implementation"]["justification"] == REASONS
    page = (runs / "b" / "report.html").read_text()
    assert "Ann &lt;b&gt;" in page
    assert "Ann <b>" not in page
    assert "the radius of last year" in page


@pytest.mark.parametrize(
    "name", ["privacy.json", "centers.parquet", "releases.parquet", "report.html", "deployment.yaml"]
)
def test_a_changed_file_is_named(copy, name):
    raw = (copy / name).read_bytes()
    place = len(raw) // 2
    (copy / name).write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
    assert refused(copy).startswith(f"dapple: {name} must be as the run wrote it, got a changed one")


@pytest.mark.parametrize("key", ["started", "run_id", "noisy_cost", "config_digest"])
def test_a_changed_manifest_is_found(copy, key):
    edit_json(copy, "run.json", lambda content: content.update({key: "other"}))
    assert refused(copy).startswith("dapple: run.json must")


def test_missing_and_further_files_are_named(copy):
    (copy / "more.txt").write_text("x")
    assert "'more.txt' is not listed in run.json" in refused(copy)
    (copy / "more.txt").unlink()
    (copy / "deep").mkdir()
    (copy / "deep" / "er.txt").write_text("x")
    assert "'deep/er.txt'" in refused(copy)
    shutil.rmtree(copy / "deep")
    (copy / "report.html").unlink()
    assert "report.html must be there" in refused(copy)


@pytest.mark.parametrize("name", ["centers.parquet", "run.json"])
def test_a_deleted_file_is_named(copy, name):
    (copy / name).unlink()
    assert f"dapple: {name} must be" in refused(copy)


def test_files_of_two_runs_are_not_swapped(runs, copy):
    shutil.copy(runs / "b" / "centers.parquet", copy / "centers.parquet")
    assert "centers.parquet must be as the run wrote it" in refused(copy)


def test_links_are_no_files(runs, copy):
    (copy / "centers.parquet").unlink()
    (copy / "centers.parquet").symlink_to(runs / "a" / "centers.parquet")
    assert "centers.parquet must be a file of its own, got a link" in refused(copy)
    shutil.copy(runs / "a" / "centers.parquet", copy / "real")
    (copy / "centers.parquet").unlink()
    (copy / "real").rename(copy / "centers.parquet")
    (copy / "folder").symlink_to(runs / "b")
    assert "'folder' is not listed in run.json" in refused(copy)


def test_a_pipe_is_not_waited_for(copy):
    (copy / "report.html").unlink()
    os.mkfifo(copy / "report.html")
    assert "report.html must be there, got no readable file" in refused(copy)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a/../../b", "..", ""])
def test_a_manifest_leads_nowhere_else(copy, path):
    edit_json(copy, "run.json", lambda content: content["files"].update({path: "0" * 64}))
    manifest = json.loads((copy / "run.json").read_text())
    manifest["manifest_digest"] = manifest_digest(manifest)
    (copy / "run.json").write_text(json.dumps(manifest))
    said = refused(copy)
    assert said.startswith("dapple: run.json must be what a run wrote")
    assert "root:" not in said


def test_a_huge_file_is_hashed_in_parts(copy):
    with open(copy / "report.html", "wb") as file:
        file.truncate(1 << 28)
    assert "report.html must be as the run wrote it" in refused(copy)


def forge(name):
    """A change of `privacy.json` that someone makes who recomputes the digests."""
    return {
        "epsilon": lambda content: content.update(epsilon=0.1),
        "delta": lambda content: content.update(delta=1e-9),
        "unit": lambda content: content.update(unit="client"),
        "event": lambda content: content["events"][0].update(noise_multiplier=99.0),
        "fewer events": lambda content: content["events"].pop(),
    }[name]


@pytest.mark.parametrize("name", ["epsilon", "delta", "unit", "event", "fewer events"])
def test_a_forged_account_does_not_add_up(copy, name):
    edit_json(copy, "privacy.json", forge(name), reseal=True)
    assert refused(copy).startswith("dapple: privacy.json must")


def test_an_account_cannot_be_kept_from_being_recomputed(copy):
    edit_json(copy, "run.json", lambda content: content.pop("settings"))
    seal(copy)
    assert refused(copy).startswith("dapple: run.json must hold the settings of the fit")


def change_noise(copy):
    """Releases that say they had more noise, with a guarantee that follows from it."""
    table = pq.read_table(copy / "releases.parquet")
    more = pa.array([2.0 * each.as_py() for each in table["noise_multiplier"]])
    field = table.schema.field("noise_multiplier")
    pq.write_table(
        table.set_column(table.schema.get_field_index("noise_multiplier"), field, more), copy / "releases.parquet"
    )
    edit_json(
        copy,
        "privacy.json",
        lambda content: [each.update(noise_multiplier=2.0 * each["noise_multiplier"]) for each in content["events"]],
    )
    seal(copy)


def test_releases_with_other_noise_do_not_add_up(copy):
    change_noise(copy)
    assert refused(copy).startswith("dapple: privacy.json must")


@pytest.mark.parametrize("algorithm", ["server_kmeanspp", "an_algorithm_to_come"])
def test_a_run_of_an_algorithm_that_is_not_there_is_verified_and_used(copy, algorithm):
    """One of an earlier version may have left since; epsilon follows from the releases all the same."""
    before = json.loads(verify(copy).out.splitlines()[-1])
    edit_json(copy, "run.json", lambda manifest: manifest.update(algorithm=algorithm), reseal=True)
    assert json.loads(verify(copy).out.splitlines()[-1]) == before
    assert np.isfinite(DPKMeans.load(copy).cluster_centers_).all()


def test_a_ledger_knows_what_was_committed(runs, copy):
    ledger = ("--ledger", str(runs / "ledger.sqlite"))
    edit_json(copy, "run.json", lambda content: content.update(started="2020-01-01"))
    seal(copy)
    assert verify(copy).code == 0
    assert "got one with another digest there" in refused(copy, *ledger)
    edit_json(copy, "run.json", lambda content: content.update(run_id="c"))
    seal(copy)
    assert "got one that it does not hold as committed" in refused(copy, *ledger)
    assert "no ledger at " in refused(copy, "--ledger", str(copy / "none.sqlite"))


def test_a_truncated_ledger_is_found(runs, copy, tmp_path):
    other = Ledger(str(tmp_path / "other.sqlite"))
    other.set_limit("census", Limit(epsilon=20.0, delta=1e-5))
    status = Ledger(str(runs / "ledger.sqlite")).status("a")
    other.reserve("a", status.charge, {})
    other.commit("a", status.committed)
    assert "got one that has seen an entry that the ledger lacks" in refused(copy, "--ledger", other.path)


def test_a_signature_is_of_one_run_by_one_key(runs, copy, tmp_path):
    (private, public), (_, stranger) = keys(tmp_path / "mine"), keys(tmp_path / "other")
    assert "signature.json must be there where --key asks for it" in refused(copy, "--key", public)
    done = verify(copy, "--sign", private)
    assert (done.code, json.loads(done.out.splitlines()[-1])["key_known"]) == (0, True)
    assert verify(copy, "--key", public).code == 0
    assert "not compared with a key of yours" in verify(copy).out
    assert "got one by another key" in refused(copy, "--key", stranger)
    assert verify(copy, "--sign", private).code == 2
    other = shutil.copytree(runs / "b", tmp_path / "b")
    shutil.copy(copy / "signature.json", other / "signature.json")
    assert "got one of another file" in refused(other, "--key", public)
    edit_json(copy, "run.json", lambda content: content.update(started="2020-01-01"))
    seal(copy)
    assert "got one of another file" in refused(copy)


def test_a_run_that_is_not_whole_is_not_signed(copy, tmp_path):
    private, _ = keys(tmp_path / "mine")
    (copy / "more.txt").write_text("x")
    refused(copy, "--sign", private)
    assert not (copy / "signature.json").exists()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"algorithm": "none"}', b"[" * 100000])
def test_a_broken_signature_is_found(copy, content):
    (copy / "signature.json").write_bytes(content)
    assert "signature.json must be a signature of run.json" in refused(copy)


def test_other_keys_are_refused(copy, tmp_path):
    wrong = X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "wrong.pem").write_bytes(wrong)
    done = verify(copy, "--sign", str(tmp_path / "wrong.pem"))
    assert (done.code, "--sign must be an Ed25519 private key" in done.err) == (2, True)
    assert verify(copy, "--sign", str(tmp_path / "none.pem")).code == 2
    assert verify(tmp_path / "nowhere").code == 2
