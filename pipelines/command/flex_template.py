"""A Dataflow Flex Template of `fit`: its parameters follow from the job's schema, and become a job again at launch.

`python -m pipelines.command.flex_template` prints the metadata, which `schedule/flex_template.json` holds;
`python -m pipelines.command.flex_template --privacy_epsilon=1 ... --output=DIR [Beam flags]` runs the job that they
describe.
"""

import argparse
import enum
import itertools
import json
import os
import sys
import tempfile
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from pipelines.command import main as command
from pipelines.run.options import new_run_id
from schemas.kmeans.any_fit import AnyFit
from schemas.kmeans.fit_config import FITS, OWN_SECTIONS
from schemas.settings import yaml_text
from schemas.settings.section import Section

_NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"paramType": "BOOLEAN", "regexes": ["^(true|false)$"]},
    int: {"paramType": "NUMBER", "regexes": ["^[0-9]+$"]},
    float: {"paramType": "TEXT", "regexes": [_NUMBER]},
    str: {"paramType": "TEXT"},
}
_OWN = (
    {
        "name": "output",
        "label": "output",
        "helpText": "The folder of the results; must be new or empty.",
        "paramType": "GCS_WRITE_FOLDER",
        "regexes": ["^gs://[^ ]+$"],
    },
    {
        "name": "run_id",
        "label": "run id",
        "helpText": "The name of the run; left out, time and a random part.",
        "isOptional": True,
        "paramType": "TEXT",
        "regexes": ["^[A-Za-z0-9_-][A-Za-z0-9._-]*$"],
    },
)


class Setting(NamedTuple):
    """One leaf of the job's schema.

    Attributes:
      path: names of its sections and its own.
      kind: plain type or enum of its values; None where they are written as YAML.
      field: as the schema has it.
      optional: whether it, or a section around it, may be left out.
    """

    path: tuple[str, ...]
    kind: Any
    field: FieldInfo
    optional: bool

    @property
    def name(self) -> str:
        """Of the template's parameter."""
        return "_".join(self.path)

    def parameter(self) -> dict[str, Any]:
        """Its entry in the metadata."""
        description = str(self.field.description)
        found: dict[str, Any] = {
            "name": self.name,
            "label": ".".join(self.path),
            "helpText": f"Give {description}{'' if self.kind is not None else ' (as YAML)'}.",
        }
        if self.optional:
            found["isOptional"] = True
        return found | self._values()

    def _values(self) -> dict[str, Any]:
        """What may be given."""
        if isinstance(self.kind, type) and issubclass(self.kind, enum.Enum):
            options = [{"value": each.value, "label": each.value} for each in self.kind]
            return {"paramType": "ENUM", "enumOptions": options}
        return dict(_PLAIN.get(self.kind, _PLAIN[str]))

    def value(self, text: str) -> Any:
        """What the job holds for a parameter: YAML, unless the setting is a plain string or word."""
        if self.kind is str or (isinstance(self.kind, type) and issubclass(self.kind, enum.Enum)):
            return text
        return yaml_text.parse(text)


def settings() -> tuple[Setting, ...]:
    """All leaves of the schema of `fit`: what every job has, then the sections of one algorithm each."""
    own = {name: FITS[algorithm].model_fields[name].annotation for name, algorithm in OWN_SECTIONS.items()}
    leaves = (_leaves(section, (name,), optional=True) for name, section in own.items() if isinstance(section, type))
    return (*_leaves(AnyFit, (), optional=False), *itertools.chain.from_iterable(leaves))


def _leaves(section: type[Section], path: tuple[str, ...], *, optional: bool) -> Iterator[Setting]:
    """Leaves of a section; a choice between a section and something else is one leaf, written as YAML."""
    for name, field in section.model_fields.items():
        kinds = _alternatives(field.annotation)
        free = optional or not field.is_required()
        if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], Section):
            yield from _leaves(kinds[0], (*path, name), optional=free)
        else:
            yield Setting((*path, field.alias or name), _plain(kinds), field, free)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """Types that a field may hold, None aside."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _alternatives(typing.get_args(annotation)[0])
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        inner = (_alternatives(each) for each in typing.get_args(annotation) if each is not types.NoneType)
        return tuple(each for group in inner for each in group)
    return (annotation,)


def _plain(kinds: tuple[Any, ...]) -> Any:
    """The type of a leaf that has a single plain one; None for lists, mappings and choices of several types."""
    [kind, *others] = kinds
    plain = isinstance(kind, type) and (kind in _PLAIN or issubclass(kind, enum.Enum))
    return kind if plain and not others else None


def metadata() -> dict[str, Any]:
    """The content of the template's metadata file."""
    return {
        "name": "Dapple fit",
        "description": "Differentially private clustering of a Parquet data set. Parameters are the settings of the "
        "job: sections and names joined by underscores.",
        "parameters": [*_OWN, *(each.parameter() for each in settings())],
    }


def job_of(given: dict[str, str]) -> dict[str, Any]:
    """The job, as plain data, that template parameters describe; sections without a parameter are left out."""
    job: dict[str, Any] = {}
    for each in settings():
        text = given.get(each.name)
        if text is None:
            continue
        section = job
        for name in each.path[:-1]:
            section = section.setdefault(name, {})
        section[each.path[-1]] = each.value(text)
    return job


def launch(argv: Sequence[str]) -> int:
    """Runs the job of some parameters; returns the exit code of `fit`, of which other flags are."""
    parser = argparse.ArgumentParser(prog="flex_template", allow_abbrev=False)
    for name in ("output", "run_id", *(each.name for each in settings())):
        parser.add_argument(f"--{name}", default=None, required=name == "output")
    known, flags = parser.parse_known_args(list(argv))
    given = {name: text for name, text in vars(known).items() if text is not None}
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "job.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(yaml_text.render(job_of(given)))
        run_id = given.get("run_id") or new_run_id()
        words = ["fit", "--config", config, "--output", given["output"], "--run_id", run_id]
        return command.main([*words, *flags])


def main(argv: Sequence[str]) -> int:
    """Launches a job, or prints the metadata if there are no parameters."""
    if argv:
        return launch(argv)
    sys.stdout.write(json.dumps(metadata(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
