"""Rows on their way through a runner of this machine: through files, so that memory stays flat."""

import contextlib
from collections.abc import Iterator

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.run.options import shuffles_in_memory
from transforms.files import row_spill


@contextlib.contextmanager
def spilling(folder: str, options: PipelineOptions) -> Iterator[str | None]:
    """The folder itself where runner and folder are of this machine, else None; files of rows go at the end."""
    local = FileSystems.get_scheme(folder) in (None, "file") and shuffles_in_memory(options)
    try:
        yield folder if local else None
    finally:
        if local:
            row_spill.remove(folder)
