"""Blocks for a shell can be pasted there: they parse, and commands take every word of them."""

import importlib.util
import pathlib
import re
import subprocess

import pytest

from dapple_dp.pipelines.command.main import COMMANDS, overview
from dapple_dp.pipelines.command.words import GROUPS, WORDS, spelled
from dapple_dp.pipelines.masked.command_line import RUN
from dapple_dp.pipelines.plan.command_line import check_flags
from dapple_dp.pipelines.run import flags, options
from dapple_dp.schemas.errors import ConfigError
from tests.scenes import pages
from tests.scenes.pages import calls

SHELLS = ("console", "bash", "sh", "shell")
BLOCKS = [pytest.param(page, text, id=name) for name, page, text in pages.blocks(*SHELLS, fence=pages.ANY_FENCE)]
PAGES = sorted({block.values[0] for block in BLOCKS})
PROMPT = re.compile(r"^\s*(?:\$|>|%|>>>|In \[\d*\]:)(?: |$)", re.MULTILINE)
PLACEHOLDER = re.compile(r"\.{3}|<[\w -]+>|\bFILL\b|(?<![\w$/{.])(?!EXTERNAL\b)[A-Z]{3,}(?:_[A-Z]+)*\b(?!=)")
VERBS = {"test", "lint", "docs", "flink-up", "flink-down", "prism-up"}
"""Words of `run_local.sh` that are no jobs."""
OTHERS = {"python", "python3", "createdb", "pip", "docker", "openssl", "head", "chmod", "cp", "mkdir", "source", "."}
"""What else a page may call: each is a program that a reader has, or that the page says to install."""
READ = ("--config", "--data", "--model")
"""Flags of what must be there before."""


def refusal(words):
    """Why a command does not take these words; empty if it does."""
    program, name, rest = words[0], words[1] if len(words) > 1 else "", words[2:]
    if program not in ("dapple", "./run_local.sh"):
        return _refused_program(words)
    if program == "./run_local.sh" and (not name or name in VERBS):
        return ""
    if name in ("--help", "--version"):
        return ""
    if name in GROUPS and rest[:1] == ["--help"]:
        return ""
    if name in GROUPS and rest:
        name, rest = rest[0], rest[1:]
    if name not in COMMANDS or spelled(name).split() != list(words[1 : len(words) - len(rest)]):
        return f"there is no word {' '.join(words[1:])}"
    try:
        _parse(name, [word for word in rest if word != "--help"], "--help" in rest)
    except ConfigError as error:
        return str(error)
    return ""


def _parse(name, rest, asks):
    """Parses like the command, as if all extras were there; a job that is asked for help needs no flags."""
    if name in WORDS:
        if rest or not asks:
            options.parse_job(name, [re.sub("[a-z0-9]+://", "", word) for word in rest], WORDS[name].flags)
        return
    command = overview()
    for each in spelled(name).split():
        command = command.commands[each]
    if isinstance(command, flags.Words):
        rest = [RUN, *rest] if name == "party" and rest[0].startswith("--") else rest
        if rest[0] not in command.commands:
            raise ConfigError(f"{name} must be followed by one of {[*command.commands]}, got {rest}.")
        command, rest = command.commands[rest[0]], rest[1:]
    check_flags(flags.read(command, rest)[0])
    if name == "schema" and rest[0] not in WORDS:
        raise ConfigError(f"schema must be asked of a job, got {rest}.")


def _refused_program(words):
    """Refuses another program unless it is one that is known, and a module of ours knows its flags."""
    if words[0] == "python" and words[1] == "-m":
        found = importlib.util.find_spec(words[2])
        if found is None:
            return f"there is no module {words[2]}"
        place = pathlib.Path(found.origin)
        place = place.with_name("__main__.py") if place.name == "__init__.py" else place
        known = {"--out", *re.findall(r'"(--[\w-]+)"', place.read_text())}
        unknown = [word for word in words[3:] if word[:2] == "--" and word.partition("=")[0] not in known]
        return f"{words[2]} has no {unknown[0]}" if unknown else ""
    known = words[0] in OTHERS or words[0].endswith("/run_partition.sh")
    return "" if known else f"there is no program {words[0]}"


@pytest.mark.parametrize(("page", "text"), BLOCKS)
def test_a_block_can_be_pasted(page, text):
    assert PROMPT.findall(text) == []
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    code = "\n".join(re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines())
    assert PLACEHOLDER.findall(code) == []


@pytest.mark.parametrize(("page", "text"), BLOCKS)
def test_every_command_takes_its_words(page, text):
    assert [why for why in map(refusal, calls(text)) if why] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_a_file_that_a_command_reads_is_named_on_the_page(page):
    """The page makes the file, shows it, or says whose it is; a job without a name is `job.yaml`."""
    text = page.read_text()
    blocks = [block for language, block in pages.ANY_FENCE.findall(text) if language in SHELLS]
    words_of = [words for block in blocks for words in calls(block)]
    told = pages.ANY_FENCE.sub(lambda fence: "" if fence[1] in SHELLS else fence[0], text)
    told += "job.yaml" if "```yaml" in text else ""
    told += " ".join(re.findall(r"(?:> |--output )(\S+)", "\n".join(blocks)))
    assert {path for words in words_of for path in read_by(words) if path not in told} == set()


def read_by(words):
    """Files and folders that a command reads."""
    if words[0] in ("dapple", "./run_local.sh") and len(words) > 2:
        yield from (words[at + 1] for at, word in enumerate(words[:-1]) if word in READ)
        if words[1] == "verify" or words[1:3] == ["tools", "clean"]:
            yield words[2 if words[1] == "verify" else 3]


@pytest.mark.parametrize(
    "text",
    [
        "$ dapple --help\n",
        "dapple fit --config FILE --output result\n",
        "dapple fit ...\n",
        "cd <folder>\n",
        "for x in\n",
    ],
)
def test_a_block_that_cannot_be_pasted_is_found(text):
    with pytest.raises(AssertionError):
        test_a_block_can_be_pasted(None, text)


@pytest.mark.parametrize(
    "line",
    [
        "dapple fitt --config job.yaml --output result",
        "dapple fit --config job.yaml",
        "dapple fit --config job.yaml --output result --epsilon 3",
        "dapple plan --config job.yaml --row 3",
        "dapple ledger spend --ledger ledger.sqlite",
        "dapple masked party new NAME --key KEY",
        "dapple tools schema fitt",
        "./run_local.sh flink-on",
        "python -m benchmarks.no_such_module",
        "python -m benchmarks.arena cells --no_such_flag 3",
        "dappel fit --config job.yaml --output result",
        "RUNS=runs dapple masked aggregate --config job.yaml --exchange exchange --released released && dapple",
    ],
)
def test_words_that_no_command_takes_are_found(line):
    assert [why for why in map(refusal, calls(line)) if why]


def test_a_file_from_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```console\ndapple verify runs/week9\n```\n")
    with pytest.raises(AssertionError):
        test_a_file_that_a_command_reads_is_named_on_the_page(page)
    page.write_text("# Page\n\n`runs/week9` is a run of yours.\n\n```console\ndapple verify runs/week9\n```\n")
    test_a_file_that_a_command_reads_is_named_on_the_page(page)


NOTEBOOKS = [page for page in pages.PAGES if "file_format: mystnb" in page.read_text()]


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.name)
def test_a_notebook_says_how_to_run_it(page):
    text = " ".join(page.read_text().split())
    assert "Its cells run in Jupyter, or as one Python file, in the root of the repository." in text
    assert not re.search(r"environ\W+[A-Z]", text)
