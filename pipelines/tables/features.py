"""Resolution of column patterns and public text files in settings, before anything is planned."""

import logging
from typing import TypeVar

import pydantic

from dapple_dp.pipelines.tables.private_source import private_source
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.tables import hive
from dapple_dp.transforms.tables.on_launcher import first_schema
from dapple_dp.transforms.tables.source import Source

_LOGGER = logging.getLogger(__name__)
_Settings = TypeVar("_Settings")


def with_features(settings: _Settings, listed: Source | None = None) -> _Settings:
    """Returns the settings with public texts loaded and columns by name, validated again.

    Other files are compared with the first one when they are read, see `TableContract.check_schema`.

    Args:
      settings: settings of any job.
      listed: files of the job, if a larger job has listed them.

    Raises:
      ConfigError: if a pattern matches nothing or the client id, or the columns don't fit other settings.
      InputError: if the first file can't be read.
    """
    with_files = getattr(settings, "with_files", None)
    settings = settings if with_files is None else with_files(_text)
    data = getattr(settings, "data", None)
    if not isinstance(settings, pydantic.BaseModel) or not isinstance(data, DataConfig) or not data.has_patterns:
        return settings
    path, schema = first_schema(private_source(settings, listed))
    patterns = data.patterns
    columns = patterns.resolved(hive.with_field(schema, path, data.client_id).names, path)
    _LOGGER.info("data.features %s: %d columns", ", ".join(patterns.features), len(columns))
    changed = dict(data) | {"features": columns, "excepted": None}
    named = rejection.check_config(type(data), changed, within="data").found_by(patterns)
    return rejection.check_config(type(settings), dict(settings) | {"data": named})


def _text(path: str, setting: str) -> str:
    """Reads a public text file named in a setting; raises ConfigError if that fails."""
    refusal = Refusal(kind=ConfigError, rule=f"{setting} must be a text file in UTF-8", remedy="check the path")
    return untrusted.read_text(path, refusal)
