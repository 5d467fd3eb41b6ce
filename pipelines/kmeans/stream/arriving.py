"""Where the rows of a stream come from: folders of dates, or a topic, and then where its messages go."""

from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.ledger.private_state import Register
from dapple_dp.pipelines.tables.arrivals.landing import Landing
from dapple_dp.pipelines.tables.arrivals.records import Records
from dapple_dp.pipelines.tables.arrivals.window_rows import LakeRows, TopicWindows
from dapple_dp.schemas.arrivals.topic import MessageColumns
from dapple_dp.schemas.kmeans.stream_config import StreamConfig
from dapple_dp.transforms.arrivals.consume import TopicClient


def window_rows(config: StreamConfig, options: PipelineOptions) -> TopicWindows | LakeRows:
    """The windows of a job's topic, or its rows that are in folders.

    Args:
      config: the job.
      options: for Beam.
    """
    stream, data = config.options, config.template.data
    if stream.kafka is None:
        return LakeRows(config.calendar, data, stream.column, stream.expected_rows)
    client, columns = TopicClient.of(stream.kafka), MessageColumns.of(data, stream.kafka)
    records = Records(
        client=client,
        folder=data.path,
        epoch=stream.name,
        days=stream.days,
        first=stream.first,
        register=Register(str(config.ledger), str(data.name), stream.name),
    )
    landing = Landing(records=records, columns=columns, column=stream.column, setting="data.path", options=options)
    band = len(config.template.weights)
    return TopicWindows(calendar=config.calendar, band=band, landing=landing, expected=stream.expected_rows)
