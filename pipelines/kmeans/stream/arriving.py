"""Where the rows of windows come from: folders that somebody else writes, or messages of a topic."""

import contextlib
import logging
from collections.abc import Iterator

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.tables.arrivals.broker import Broker, check_settings, connected
from pipelines.tables.arrivals.landing import Landing, check_kept
from pipelines.tables.arrivals.records import Records
from schemas.arrivals.topic import MessageColumns, TopicConfig
from schemas.errors import InputError
from schemas.kmeans.stream_config import StreamConfig
from transforms.arrivals.consume import TopicClient

_LOGGER = logging.getLogger(__name__)


class FolderRows:
    """Rows that lie in the folders of their windows already."""

    def ready(self, index: int) -> None:
        """Makes the rows of a window and of those before it readable."""

    def released(self, index: int) -> None:
        """Takes note that a window is released."""


class TopicRows(FolderRows):
    """Messages of a topic, copied to private files while windows are released.

    Args:
      config: the job.
      broker: of the topic.
      landing: where the messages go.
    """

    def __init__(self, config: StreamConfig, broker: Broker, landing: Landing):
        self._config = config
        self._broker = broker
        self._landing = landing
        self._copied: set[str] = set()

    def ready(self, index: int) -> None:
        """Cuts the window, unless it was cut before, and copies the messages that its release adds up.

        Raises:
          ConfigError: if other messages could move a cut, or push messages out.
          InputError: if messages or records are gone, or the broker does not answer.
        """
        options, records, broker = self._config.options, self._landing.records, self._broker
        state = broker.state()
        check_settings(records.client.topic, state.settings, (options.band + 1) * options.days)
        before = records.kept(self._config.calendar.date(index - 1)) if index else None
        records.cut(broker, state, self._config.calendar.date(index), before)
        dates = [self._config.calendar.date(each) for each in range(max(0, index + 1 - options.band), index + 1)]
        wanted = [date for date in dates if date not in self._copied]
        check_kept(records.client, broker, [records.kept(date) for date in wanted])
        self._drop(dates)
        self._landing.copy(wanted)
        self._copied.update(wanted)
        if broker.state().topic_id != state.topic_id:
            raise records.client.gone()

    def released(self, index: int) -> None:
        """Tells the broker how far windows are released; if it does not listen, nothing depends on it."""
        try:
            self._broker.commit(self._landing.records.kept(self._config.calendar.date(index)).ends)
        except InputError:
            _LOGGER.warning("warning: the broker was not told that a window is released; its tools show an older one")

    def _drop(self, dates: list[str]) -> None:
        """Removes the copies of windows that no later release adds up."""
        gone = sorted(self._copied - set(dates))
        if gone:
            self._landing.remove(gone)
            self._copied -= set(gone)


@contextlib.contextmanager
def arriving(config: StreamConfig, output: str, options: PipelineOptions) -> Iterator[FolderRows]:
    """The rows of windows, while some are due.

    Args:
      config: the job.
      output: its folder.
      options: for Beam.

    Raises:
      ConfigError: if the folder of the copies holds anything else.
    """
    topic = config.options.kafka
    if topic is None:
        yield FolderRows()
        return
    landing = landing_of(config, topic, options)
    landing.check(output)
    landing.remove()
    with connected(landing.records.client, f"dapple-{config.options.name}") as broker:
        try:
            yield TopicRows(config, broker, landing)
        finally:
            landing.remove()


def landing_of(config: StreamConfig, topic: TopicConfig, options: PipelineOptions) -> Landing:
    """Where the messages of a job go."""
    stream, data = config.options, config.template.data
    client = TopicClient.of(topic)
    records = Records(client=client, folder=data.path, epoch=stream.name, days=stream.days)
    return Landing(records=records, columns=MessageColumns.of(data, topic), column=stream.column, options=options)
