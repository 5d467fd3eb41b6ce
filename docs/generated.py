"""Pages of the reference that follow from the code (settings, tiers, exit codes), and names that one shows."""

import inspect
import pathlib
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pydantic
from pydantic import Field
from pydantic.fields import FieldInfo

from dapple_dp import DPKMeans, PrivateScaler
from dapple_dp.pipelines.command.words import PARTY, TOOLS, WORDS, spelled
from dapple_dp.schemas import errors
from dapple_dp.schemas.choices import Choice, Runner, Tier
from dapple_dp.schemas.clustered_fl.config import ClusteredFLConfig
from dapple_dp.schemas.kmeans.fit_config import FITS
from dapple_dp.schemas.kmeans.jobs.model_job import PrepareConfig
from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig
from dapple_dp.schemas.kmeans.jobs.stream_config import StreamOptions
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.schemas.masked.config import AggregateConfig
from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.reports.config import DecodeConfig, EncodeConfig, ShuffleConfig
from dapple_dp.schemas.reports.windows import WindowedDecode
from dapple_dp.schemas.settings.gone import GONE, GONE_VALUES
from dapple_dp.schemas.settings.tiers import tier_of
from dapple_dp.schemas.trusted_zone.job_configs import AssignConfig, EvaluateConfig

Model = type[pydantic.BaseModel]


_STREAM = pydantic.create_model(
    "Stream",
    stream=(StreamOptions, Field(description="a section with start, name, column, first and windows")),
    state=(str | None, WindowsFit.model_fields["state"]),
)
JOBS: Mapping[str, Model] = {f"fit with {algorithm}": kind for algorithm, kind in FITS.items()} | {
    "fit without privacy": PooledFitConfig,
    "stream, beside those of dp_lloyd": _STREAM,
    "prepare": PrepareConfig,
    "assign": AssignConfig,
    "evaluate": EvaluateConfig,
    "profile": ProfileConfig,
    "encode": EncodeConfig,
    "shuffle": ShuffleConfig,
    "decode": DecodeConfig,
    "decode with windows": WindowedDecode,
    "aggregate": AggregateConfig,
    "clustered_fl": ClusteredFLConfig,
}
_CODES = {
    0: "The job is done, and its output is complete.",
    1: "Something unexpected happened, or the runner gave the job up. Run again with `--verbose`.",
    2: "A setting or the input is wrong. The sentence on stderr says which, and nothing was written.",
    3: "The ledger refused the run. No row was read. A retry changes nothing.",
    4: "The graph of the job would let private data around the noise. The sentence names the way.",
    5: "A file of masked aggregation is not what the protocol lets be sent now, or `verify` found a run altered.",
    6: "A party has waited as long as it may (`--wait_minutes`). The sentence says for whom. The same command resumes.",
    66: "No input yet: there is no file at the path. Try again when the data have come, or correct the path.",
    67: "All windows that were due are released; one had fewer rows than `stream.expected_rows`. The guarantee does "
    "not cover this code: it depends on rows. Look at the producer.",
    75: "Something outside did not answer. Nothing was lost. Try again later, with the same `--run_id`.",
    130: "The job was interrupted. The same `--run_id` resumes it.",
}


def write(folder: pathlib.Path) -> None:
    """Writes all generated pages; a page that has not changed is left alone."""
    pages = {"settings.md": settings_page(), "tiers.md": tiers_page(), "exit-codes.md": exit_codes_page()}
    for name, text in pages.items():
        page = folder / name
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def settings_page() -> str:
    """A section per job, a row per setting."""
    lines = [
        "# Settings of every job",
        "",
        "A job is a YAML file. This page is generated from the models that read it. Names are dotted: the key",
        "`epsilon` of the section `privacy` is `privacy.epsilon`. A setting without a default is required.",
    ]
    for name, model in JOBS.items():
        lines += ["", f"## {name}", "", "| setting | what to give | default |", "| --- | --- | --- |"]
        lines += [
            f"| `{dotted}` | {_cell((field.description or '') + _tiers_in_words(field))} | {_default(field)} |"
            for dotted, field in _fields(model)
        ]
    lines += ["", "## Settings that left", "", "A job that names one of these is refused, with what to do instead.", ""]
    lines += [
        "| setting | instead |",
        "| --- | --- |",
        *(f"| `{name}` | {_cell(gone.instead)} |" for name, gone in GONE.items()),
        *(f"| `{name}: {value}` | {_cell(instead)} |" for (name, value), instead in GONE_VALUES.items()),
    ]
    return "\n".join(lines) + "\n"


def tiers_page() -> str:
    """Commands, runners, settings and values that are not supported."""
    commands = {name: word.tier for name, word in WORDS.items()} | dict.fromkeys((*TOOLS, PARTY), Tier.SUPPORTED)
    others = [
        *sorted((spelled(name), tier) for name, tier in commands.items()),
        *((str(each), each.tier) for each in Runner),
    ]
    beyond = {(name, job.partition(" ")[0]): tier for job, model in JOBS.items() for name, tier in _beyond(model)}
    rows = {name: (tier, [job for other, job in beyond if other == name]) for (name, _), tier in beyond.items()}
    return "\n".join(
        [
            "# Support tiers",
            "",
            "Every command, runner, setting and value has a tier. This page is generated from the code that checks it;",
            "`dapple tools schema JOB` has the same under `x-tier` and `x-tiers`.",
            "",
            "| tier | what it means |",
            "| --- | --- |",
            f"| {Tier.SUPPORTED} | it is tested beside everything else, and [stays as it is](stability.md) |",
            f"| {Tier.EXPERIMENTAL} | the guarantee holds as everywhere; it may release worse centers than what is "
            "supported, nobody has run it where it would be used, or it may change in any version |",
            f"| {Tier.PAPER_ONLY} | it repeats a published method or figure, and something supported is better |",
            "",
            "A job that holds what is not supported says `experimental: true`. Without it the job is refused in one",
            "sentence, before anything is read or charged. The word changes nothing that is released, and a run that",
            "began without it can be resumed. `dapple plan` lists what of a job is not supported.",
            "",
            "All commands and runners are supported but these, and runners that aren't named here are experimental:",
            "",
            *_table("command or runner", ((f"`{name}`", tier) for name, tier in others if tier is not Tier.SUPPORTED)),
            "",
            "All settings of the [reference](settings.md), and all of their values, are supported but these:",
            "",
            "| setting, or value of one | tier | jobs |",
            "| --- | --- | --- |",
            *(f"| `{name}` | {tier} | {', '.join(jobs)} |" for name, (tier, jobs) in sorted(rows.items())),
            "",
        ]
    )


def _table(what: str, tiers: Iterable[tuple[str, Tier]]) -> list[str]:
    return [f"| {what} | tier |", "| --- | --- |", *(f"| {name} | {tier} |" for name, tier in tiers)]


def _beyond(model: Model) -> Iterator[tuple[str, Tier]]:
    """Settings that are not supported, and values of the others that are not."""
    for dotted, field in _fields(model):
        if tier_of(field) is not Tier.SUPPORTED:
            yield dotted, tier_of(field)
        else:
            yield from ((f"{dotted}: {each}", each.tier) for each in _choices(field.annotation))


def _choices(annotation: Any) -> Iterator[Choice]:
    """Values of a setting that are not supported."""
    parts = typing.get_args(annotation) or (annotation,)
    for part in parts if parts[0] is not annotation else ():
        yield from _choices(part)
    words = annotation if inspect.isclass(annotation) and issubclass(annotation, Choice) else ()
    words = [annotation] if isinstance(annotation, Choice) else words
    yield from (each for each in words if each.tier is not Tier.SUPPORTED)


def _tiers_in_words(field: FieldInfo) -> str:
    """Returns the end of a setting's description: its tier, or those of its values."""
    if tier_of(field) is not Tier.SUPPORTED:
        return f" ({tier_of(field)})"
    found = list(_choices(field.annotation))
    by_tier = {tier: [str(each) for each in found if each.tier is tier] for tier in Tier}
    return "".join(f"; {tier}: {', '.join(words)}" for tier, words in by_tier.items() if words)


def exit_codes_page() -> str:
    """A section per exit code, with the errors that end in it."""
    lines = [
        "# Exit codes",
        "",
        "Every command ends with one of these. One sentence on stderr says why, unless the code is 0.",
    ]
    for code, meaning in _CODES.items():
        lines += ["", f"## {code}", "", meaning]
        found = [each for each in _errors() if each.exit_code == code and each is not errors.DappleError]
        lines += ["", *(f"- `{each.__name__}`: {_first_line(each)}" for each in found)] if found else []
    return "\n".join(lines) + "\n"


def learned_names() -> dict[str, list[str]]:
    """Names of the attributes that `fit` sets, by class, as docstrings have them."""
    return {
        each.__name__: re.findall(r"^ {6}(\w+_):", (each.__doc__ or "").partition("Attributes:")[2], re.MULTILINE)
        for each in (DPKMeans, PrivateScaler)
    }


def lost_names(page: str) -> list[str]:
    """Learned attributes that the built page of the API does not show letter for letter."""
    named = [f"{kind}.{name}" for kind, names in learned_names().items() for name in names]
    return [name for name in named if f"<strong>{name.partition('.')[2]}</strong>" not in page]


def _errors() -> list[type[errors.DappleError]]:
    return [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.DappleError)]


def _first_line(documented: type) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0]


def _fields(model: Model, within: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Settings with dotted names; a section is followed by what is in it."""
    for name, field in model.model_fields.items():
        dotted = f"{within}{field.alias or name}"
        yield dotted, field
        for section in _sections(field.annotation):
            yield from _fields(section, f"{dotted}.")


def _sections(annotation: Any) -> Iterator[Model]:
    """Sections that a setting may be; those of a mapping's values have no names of their own."""
    if inspect.isclass(annotation) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for each in typing.get_args(annotation):
            yield from _sections(each)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is None:
        return "none"
    return "see below" if isinstance(default, pydantic.BaseModel) else f"`{default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    write(pathlib.Path(__file__).resolve().parent / "reference")
