"""Records of Flower's messages: files by name, and a summary of numbers."""

from collections.abc import Mapping

from flwr.app import ConfigRecord, RecordDict

_FILES, _SUMMARY = "files", "summary"


def packed(files: Mapping[str, bytes], summary: Mapping[str, int | float | str | bool] | None = None) -> RecordDict:
    """A message's content."""
    return RecordDict({_FILES: ConfigRecord(dict(files)), _SUMMARY: ConfigRecord(dict(summary or {}))})


def files_of(content: RecordDict) -> dict[str, bytes]:
    """Files of a message."""
    return dict(content[_FILES])


def summary_of(content: RecordDict) -> dict[str, int | float | str | bool]:
    """Summary of a message."""
    return dict(content[_SUMMARY])
