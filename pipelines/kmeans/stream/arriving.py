"""Where the messages of a stream go, if its rows come from a topic."""

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.tables.arrivals.landing import Landing
from pipelines.tables.arrivals.records import Records
from pipelines.tables.arrivals.window_rows import TopicWindows
from schemas.arrivals.topic import MessageColumns
from schemas.kmeans.stream_config import StreamConfig
from transforms.arrivals.consume import TopicClient


def topic_windows(config: StreamConfig, options: PipelineOptions) -> TopicWindows | None:
    """The windows of a job's topic; None if its rows lie in folders.

    Args:
      config: the job.
      options: for Beam.
    """
    stream, data = config.options, config.template.data
    if stream.kafka is None:
        return None
    client, columns = TopicClient.of(stream.kafka), MessageColumns.of(data, stream.kafka)
    records = Records(client=client, folder=data.path, epoch=stream.name, days=stream.days)
    landing = Landing(records=records, columns=columns, column=stream.column, setting="data.path", options=options)
    return TopicWindows(calendar=config.calendar, band=len(config.template.weights), landing=landing)
