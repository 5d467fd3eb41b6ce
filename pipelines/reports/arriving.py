"""Where the reports of a topic go, if they do not lie in folders already."""

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.reports.source import find_reports
from pipelines.tables.arrivals.landing import Landing
from pipelines.tables.arrivals.records import Records
from pipelines.tables.arrivals.window_rows import TopicWindows
from schemas.choices import ReportMode
from schemas.errors import ConfigError
from schemas.reports.rows import message_columns
from schemas.reports.split_parameters import SplitParameters
from schemas.reports.windows import WindowedDecode, shuffled_in_order
from transforms.arrivals.consume import TopicClient


def topic_windows(config: WindowedDecode, options: PipelineOptions) -> TopicWindows | None:
    """The windows of a job's topic; None if its reports lie in folders.

    Args:
      config: the job.
      options: for Beam.

    Raises:
      ConfigError: if reports of a shuffled batch are to come from a topic.
    """
    given = config.windows
    if given.kafka is None:
        return None
    parameters = find_reports(config.window(0).config, config.root, "reports.path").parameters
    if isinstance(parameters, SplitParameters) or parameters.guarantee.mode is ReportMode.SHUFFLE:
        raise ConfigError(shuffled_in_order())
    client, columns = TopicClient.of(given.kafka), message_columns(parameters)
    records = Records(client=client, folder=config.root, epoch=given.name, days=given.days)
    landing = Landing(records=records, columns=columns, column=given.column, setting="reports.path", options=options)
    return TopicWindows(calendar=config.calendar, band=1, landing=landing)
