"""Which columns a job's patterns stand for: found in the schema of its first file, before anything is planned."""

import logging
from typing import TypeVar

import pydantic

from pipelines.tables.private_source import private_source
from schemas.settings import rejection
from schemas.tables.data_section import DataConfig
from transforms.tables import hive
from transforms.tables.read import first_schema
from transforms.tables.source import Source

_LOGGER = logging.getLogger(__name__)
_Settings = TypeVar("_Settings")


def with_features(settings: _Settings, listed: Source | None = None) -> _Settings:
    """The settings of a job with columns by name, checked again; as they are where there are no patterns.

    Other files are compared with the first one when they are read, see `TableContract.check_schema`.

    Args:
      settings: of any job.
      listed: its files, if it is a part of a job that has listed them.

    Raises:
      ConfigError: if a pattern matches nothing or the client id, or the columns do not fit the other settings.
      InputError: if the first file cannot be read.
    """
    data = getattr(settings, "data", None)
    if not isinstance(settings, pydantic.BaseModel) or not isinstance(data, DataConfig) or not data.has_patterns:
        return settings
    path, schema = first_schema(private_source(settings, listed))
    patterns = data.patterns
    columns = patterns.resolved(hive.with_field(schema, path, data.client_id).names, path)
    _LOGGER.info("data.features %s: %d columns", ", ".join(patterns.features), len(columns))
    changed = dict(data) | {"features": columns, "excepted": None}
    named = rejection.checked(type(data), changed, within="data").found_by(patterns)
    return rejection.checked(type(settings), dict(settings) | {"data": named})
