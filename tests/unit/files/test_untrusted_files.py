"""No code of the packages opens or parses a file around `files/untrusted.py`, but for the places listed here."""

import ast
import functools
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGES = ("schemas", "transforms", "pipelines", "dapple_dp")

OPENERS = {
    "open",
    "io.open",
    "io.FileIO",
    "os.open",
    "os.fdopen",
    "codecs.open",
    "mmap.mmap",
    "gzip.open",
    "bz2.open",
    "lzma.open",
    "zipfile.ZipFile",
    "tarfile.open",
    "shelve.open",
    "sqlite3.connect",
    "json.load",
    "json.loads",
    "json.JSONDecoder",
    "marshal.load",
    "marshal.loads",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "tomllib.load",
    "tomllib.loads",
    "csv.reader",
    "csv.DictReader",
    "configparser.ConfigParser",
    "eval",
    "exec",
    "ast.literal_eval",
    "dapple_dp.schemas.settings.json_text.parse",
    "dapple_dp.transforms.files.file_bytes.read_bytes",
    "dapple_dp.transforms.files.stores.open_store",
    "dapple_dp.transforms.files.stores.STORE.open",
    "dapple_dp.transforms.files.stores.STORE.get",
}
"""Names that open a file or parse what may be one."""
PARSERS = ("yaml", "numpy", "pyarrow", "pandas", "xml", "fastavro", "cloudpickle", "dill", "msgpack", "apache_beam.io")
VERBS = (
    "load",
    "loads",
    "full_load",
    "unsafe_load",
    "safe_load",
    "load_all",
    "compose",
    "parse",
    "genfromtxt",
    "fromfile",
    "loadtxt",
    "memmap",
    "open_memmap",
    "open_file",
    "open_stream",
    "open_csv",
    "memory_map",
    "OSFile",
    "input_stream",
    "ParquetFile",
    "ParquetDataset",
    "dataset",
    "FileSystems.open",
)
"""What libraries of `PARSERS` call the same; names that start with `read_` count as well."""
METHODS = {"read_bytes", "read_text", "model_validate_json", "validate_json", "parse_raw", "parse_file", "fromfile"}

ALLOWED = {
    ("transforms/files/untrusted.py", "*"): "the module itself",
    ("schemas/settings/yaml_text.py", "yaml.load"): "the parser of YAML",
    ("schemas/settings/json_text.py", "json.loads"): "the parser of JSON",
    ("schemas/settings/json_schema.py", "dapple_dp.schemas.settings.json_text.parse"): "the check of JSON",
    ("schemas/settings/json_schema.py", ".validate_json"): "the check of JSON",
    (
        "schemas/reports/parameters.py",
        "dapple_dp.schemas.settings.json_text.parse",
    ): "for devices, which have no pydantic",
    (
        "schemas/arrivals/messages.py",
        "dapple_dp.schemas.settings.json_text.parse",
    ): "messages: a row each, or a broken one",
    ("schemas/tables/data_section.py", "dapple_dp.schemas.settings.json_text.parse"): "text of this run's listing",
    (
        "schemas/kmeans/model.py",
        "dapple_dp.schemas.settings.json_text.parse",
    ): "metadata of a table, whose costs may be infinite",
    ("transforms/files/formats/csv_file.py", "pyarrow.csv.read_csv"): "what `untrusted` hands on, in blocks",
    (
        "transforms/files/formats/packed_rows.py",
        "pyarrow.parquet.ParquetFile",
    ): "the class of what `untrusted` hands on",
    ("transforms/files/formats/packed_rows.py", "pyarrow.OSFile"): "asks whether what `untrusted` opens is on a disk",
    ("transforms/files/formats/csv_file.py", "csv.reader"): "the first row of what `untrusted` hands on",
    ("transforms/files/file_bytes.py", "dapple_dp.transforms.files.stores.STORE.get"): "bytes that are compared only",
    ("transforms/files/new_file.py", "os.open"): "writes a new file, or flushes one",
    ("transforms/files/new_file.py", "os.fdopen"): "writes a new file",
    ("transforms/tables/file_seal.py", "dapple_dp.transforms.files.stores.open_store"): "hands bytes to `untrusted`",
    ("transforms/tables/file_seal.py", "pyarrow.OSFile"): "hands bytes of a regular file to `untrusted`",
    ("transforms/tables/listing.py", "dapple_dp.transforms.files.stores.STORE.open"): "lines whose digest is compared",
    ("transforms/tables/listing.py", "json.loads"): "lines whose digest is compared",
    ("transforms/tables/listing.py", "sqlite3.connect"): "a database of this process",
    ("transforms/rounds/machine.py", ".read_text"): "what the system itself says of this process, in /proc and below",
    ("pipelines/command/early.py", "open"): "a small regular file, for the loaders of YAML",
    ("pipelines/command/signal_flags.py", "open"): "a first line, looked at for the mark of a file of ours",
    ("pipelines/run/folder.py", "dapple_dp.transforms.files.file_bytes.read_bytes"): "bytes that are hashed only",
    (
        "transforms/files/checkpoint.py",
        "dapple_dp.transforms.files.file_bytes.read_bytes",
    ): "bytes that are compared only",
    ("pipelines/page/svg.py", ".read_text"): "a style sheet of the program",
    ("transforms/numerics/kernel/library.py", ".read_bytes"): "sources of the program, whose digest is compared",
    ("transforms/privacy/plan_cache.py", "open"): "writes a file",
    ("transforms/files/row_spill.py", "open"): "bytes of this run, by place and length",
    ("transforms/tables/shard_rows.py", "pyarrow.ipc.read_schema"): "names and types of this run, between its steps",
    ("transforms/tables/group_clients.py", "pyarrow.ipc.open_stream"): "bytes of this run, between its workers",
    ("transforms/profile/measure_clusters.py", "pyarrow.ipc.open_stream"): "bytes of this run, between its workers",
    (
        "transforms/rounds/state_arrays.py",
        "dapple_dp.schemas.settings.json_text.parse",
    ): "a tree among arrays that `untrusted` read",
    ("pipelines/run/folder.py", "os.open"): "locks a folder",
    ("pipelines/run/signals/exports.py", "os.open"): "writes a new file",
    ("pipelines/run/signals/exports.py", "os.fdopen"): "writes a new file",
    ("pipelines/jobs/lineage.py", "open"): "appends to a file",
    ("pipelines/trusted_zone/sweep_folder.py", "os.open"): "locks a folder",
    ("transforms/files/claims.py", "os.open"): "locks a folder",
    ("transforms/files/claims.py", "dapple_dp.transforms.files.file_bytes.read_bytes"): "bytes that are compared only",
    ("pipelines/plan/leftovers.py", "os.open"): "locks a folder",
    ("pipelines/ledger/sqlite_file.py", "os.open"): "makes a file",
    (
        "pipelines/ledger/sqlite_file.py",
        "sqlite3.connect",
    ): "SQLite's own checks, and a chain of digests",
    ("pipelines/command/main.py", "open"): "the null device",
    ("pipelines/command/main.py", "os.fdopen"): "stderr",
    ("dapple_dp/__init__.py", ".read_text"): "a stub of the program",
    ("dapple_dp/api.py", "pyarrow.parquet.read_table"): "the table that the call itself has written",
}
"""Where a file may be opened or parsed elsewhere, and why nothing in it is believed unchecked."""


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Returns what imported names stand for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                first = each.name.partition(".")[0]
                found[each.asname or first] = each.name if each.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner else ""


def _opener(node: ast.AST, aliases: dict[str, str], own: set[str]) -> str:
    """Returns what a reference opens or parses a file with; empty if it does not."""
    if isinstance(node, ast.Attribute) and node.attr in METHODS and _dotted(node.value) not in aliases:
        return f".{node.attr}"
    dotted = _dotted(node)
    first, _, rest = dotted.partition(".")
    if not dotted or (first in own and first not in aliases):
        return ""
    name = f"{aliases.get(first, first)}.{rest}".rstrip(".")
    library = next((each for each in PARSERS if f"{name}.".startswith(f"{each}.")), "")
    verb = any(f".{name}".endswith(f".{each}") for each in VERBS) or name.rpartition(".")[2].startswith("read_")
    return name if name in OPENERS or (library and verb) else ""


def _annotations(tree: ast.AST) -> set[ast.AST]:
    """Nodes that only say of what type something is."""
    given = [getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns")]
    return {inside for each in given if isinstance(each, ast.AST) for inside in ast.walk(each)}


def openers(source: str) -> set[str]:
    """Everything in a source that opens or parses a file, whether it is called there or handed on.

    A name that gets a value, as that of a method, is no reference.
    """
    tree = ast.parse(source)
    aliases = _aliases(tree)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    types = _annotations(tree)
    named = (node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute) and node not in types)
    nodes = [node for node in named if isinstance(node.ctx, ast.Load)]
    found = {_opener(node, aliases, own) for node in nodes}
    # An import under another roof hides what is done with it.
    imported = {name for name in aliases.values() if name in OPENERS}
    hidden = {name for name in aliases.values() if name.startswith(PARSERS) and name.rpartition(".")[2] in VERBS}
    return (found | imported | hidden) - {""}


@functools.cache
def found_openers() -> frozenset[tuple[str, str]]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return frozenset((str(path.relative_to(ROOT)), each) for path in paths for each in openers(path.read_text()))


def test_every_file_is_opened_by_the_gate():
    around = {each for each in found_openers() if each not in ALLOWED and (each[0], "*") not in ALLOWED}
    assert around == set()


def test_no_exception_is_left_over():
    used = {(path, name) for path, name in found_openers()} | {(path, "*") for path, _ in found_openers()}
    assert set(ALLOWED) - used == set()


@pytest.mark.parametrize(
    "source",
    [
        "import json\njson.loads('1')",
        "from json import loads as understood\nunderstood('1')",
        "import functools, json\nread = functools.partial(json.load)",
        "import yaml\nyaml.safe_load(text)",
        "import numpy as np\nnp.load(path)",
        "from numpy import load",
        "import pyarrow.parquet as pq\npq.read_table(path)",
        "import pyarrow.parquet as pq\npq.ParquetFile(path)",
        "import pyarrow as pa\npa.OSFile(path)",
        "import pyarrow.dataset\npyarrow.dataset.dataset(path)",
        "import pathlib\npathlib.Path(path).read_text()",
        "Path(path).read_bytes()",
        "open(path)",
        "opened = map(open, paths)",
        "import pickle\npickle.loads(bytes)",
        "from dapple_dp.transforms.files.file_bytes import read_bytes\nread_bytes(path)",
        "from dapple_dp.transforms.files import file_bytes\nfile_bytes.read_bytes(path)",
        "from apache_beam.io.filesystems import FileSystems\nFileSystems.open(path)",
        "Model.model_validate_json(text)",
        "import sqlite3\nsqlite3.connect(path)",
    ],
)
def test_a_planted_opener_is_found(source):
    assert openers(source)


@pytest.mark.parametrize(
    "source",
    [
        "import json\njson.dumps(1)",
        "from dapple_dp.transforms.files import untrusted\nuntrusted.read_json(path, Kind, refusal)",
        "def open(path): ...\nopen(path)",
        "folder.open()",
        "import numpy as np\nnp.savez(file)",
        "import pyarrow.parquet as pq\ndef rows(file: pq.ParquetFile) -> pq.ParquetFile: ...",
    ],
)
def test_other_code_is_not_listed(source):
    assert not openers(source)
