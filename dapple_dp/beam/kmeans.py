"""Private k-means as a transform in a pipeline of Apache Beam."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow

from dapple_dp.beam.launch_keys import LaunchKeys
from dapple_dp.beam.rows import BlocksFn, BlockSums, ReadFn, RowBlock
from dapple_dp.beam.windows import EachWindowFn, PublicWindows, public_windows
from dapple_dp.estimator.dp_kmeans import DPKMeans
from dapple_dp.estimator.released_run import released_run
from dapple_dp.pipelines.kmeans.fit_in_memory import result_of
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.pipelines.run import run_keys
from dapple_dp.pipelines.run.folder import new_run_id
from dapple_dp.pipelines.run.round_driver import check_rounds
from dapple_dp.schemas.core.plan import GraphPrivacy
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.on_beam.checker import check_part
from dapple_dp.transforms.on_beam.round import Central, RunRounds
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.tables.read import CheckRows

_OTHER_RUNS = ("template_location", "output_executable_path", "update", "create_from_snapshot")
"""Options that save a pipeline, so that it could be run several times, or that go on with an earlier run."""


class KMeans(beam.PTransform):
    """Clusters the rows of a pipeline privately.

    Input: `pyarrow.RecordBatch`; with unit "client", pairs of a client id and a `RecordBatch`, in any order. A batch
    has all columns of `columns`, in any order; other columns are ignored. A null or NaN in a column that `missing`
    doesn't name fails the pipeline.

    Output: one fitted `DPKMeans`, even without any rows. You may share its centers, sizes, `privacy_` and `report()`;
    `save` writes a folder for `dapple assign`. The attribute `releases` of the output is a PCollection of the noised
    aggregates that the centers were computed from, one `Release` each.

    Privacy: the guarantee covers the input of this step. A row counts as often as it comes in, so you are responsible
    for earlier steps that change a person's rows, or copy them elsewhere. Each run of the pipeline spends epsilon and
    delta, draws fresh noise, and isn't charged to any ledger. The graph of the rounds is checked when it is built,
    before anything runs.

    Keys: the graph contains the place of a key and a random nonce, never a key, so a runner may store it. Each run of
    the pipeline has a new nonce. A saved graph that ran twice would repeat its noise, and equal releases of two runs
    would reveal that no row has changed. So templates are refused, and you must not clone a job from its stored graph.
    If a runner repeats steps, those before this one must produce the same rows again.

    Windowing: the global window, with its default trigger. Experimental: with unit "record" also `FixedWindows` that
    fire once, with discarding panes and without lateness, of bounded rows or a stream. Each window of the public range
    `windows` has a model, even without any rows, once the watermark has passed its end, and spends epsilon and delta.
    Rows outside of the range are left out, and late rows are dropped before the first round. All windows together
    spend as much as one, if each row comes in once, and neither its window nor whether it is late depends on other
    rows. A source that sets the watermark by the times of rows breaks this. So does a job that is updated, or restored
    from a savepoint, while a window is open: it draws again.

    Cost: one pass over the rows per round. With unit "client", also one grouping of all rows by client, since bounds
    need all rows of a client, which must fit into memory; in windows, also one shuffle of all rows.

    Args:
      n_clusters: see `DPKMeans`.
      columns: names of the features; None takes those of `domain`, if that is a mapping.
      key_uri: file with 32 random bytes that only workers can read; None creates one for workers on this machine, which
        is deleted when this process ends.
      windows: start of the first window and end of the last, in seconds since 1970 or as `datetime` in UTC, for rows in
        windows; None for the global window. Choose them without looking at rows.
      parameters: those of `DPKMeans`, except for `ledger` and `verbose`. `epsilon`, `delta`, and `domain` or
        `clipping_norm` have no defaults here.

    Raises:
      ConfigError: if a parameter breaks its rule.
    """

    def __init__(
        self,
        n_clusters: Any,
        *,
        columns: Sequence[str] | None = None,
        key_uri: str | None = None,
        windows: tuple[Any, Any] | None = None,
        **parameters: Any,
    ):
        super().__init__()
        odd = next((name for name in ("ledger", "verbose") if parameters.get(name)), None)
        if odd is not None:
            raise ConfigError(f"{odd} isn't supported in a Beam transform; leave it out, or run `dapple fit` on files.")
        self._estimator, self._key_uri, self._windows = DPKMeans(n_clusters, **parameters), key_uri, windows
        self._keys: list[LaunchKeys] = []
        names = self._estimator._known_columns() if columns is None else columns
        if (
            not isinstance(names, Sequence)
            or isinstance(names, str)
            or not all(isinstance(name, str) for name in names)
        ):
            raise ConfigError(f"columns must be the names of the features, got {names!r}; try columns=['x', 'y'].")
        self._planned = self._estimator._plan_for(names)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        """Adds the rounds to the pipeline, and checks them."""
        _check_one_run(rows.pipeline)
        windows = public_windows(rows, self._windows, by_client=self._planned.contract.by_client)
        check_rounds(rows.pipeline.options, len(self._planned.rounds), "lloyd_steps")
        keys, root = LaunchKeys(self._key_uri), rows.pipeline
        state = rows | "Private" >> _PrivateRounds(planned=self._planned, key_source=keys.place(), windows=windows)
        part = root.transforms_stack[-1].parts[-1]
        spent = check_part(part, self._planned.promise)
        run_keys.check_held_keys(root)
        keys.take(part, root)
        self._keys.append(keys)
        models = state | "Model" >> beam.Map(_model, self._estimator, self._planned, spent).with_output_types(DPKMeans)
        models.releases = models | "Releases" >> beam.FlatMap(_releases).with_output_types(Release)
        return models

    def to_runner_api_parameter(self, context: Any) -> Any:
        """Gives the graph new keys every time it is translated, before its steps are."""
        for keys in self._keys:
            keys.renew()
        return super().to_runner_api_parameter(context)


@dataclasses.dataclass(eq=False, kw_only=True)
class _PrivateRounds(beam.PTransform):
    """Transform from rows to the state after the last round, in each window: the part of the graph that is checked."""

    planned: PlannedFit
    key_source: KeyFile
    windows: PublicWindows | None = None

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        planned = self.planned
        contract = planned.contract
        items = rows | "Read" >> beam.ParDo(ReadFn(contract, self.windows))
        # A sum over no rows is zero instead of absent.
        empty = self._public(rows, "Empty", RowBlock() if self.windows is None else (0, None))
        put = beam.ParDo(BlocksFn(contract, self.windows))
        if self.windows is not None:
            # Late rows are dropped once for all rounds, and nothing is ahead of the side inputs of its window.
            blocks = (items, empty) | "Rows" >> beam.Flatten() | "ByWindow" >> beam.GroupByKey() | "Blocks" >> put
        else:
            items = (items | "ByClient" >> beam.GroupByKey() if contract.by_client else items) | "Blocks" >> put
            blocks = (items, empty) | "Rows" >> beam.Flatten() | "Spread" >> beam.Reshuffle()
        _ = blocks | "CheckRows" >> CheckRows(may_be_empty=True)
        state = self._public(rows, "Public", planned.initial)
        aggregation = Central(reader=BlockSums(contract), key_source=self.key_source)
        return blocks | "Rounds" >> RunRounds(rounds=planned.rounds, state=state, aggregation=aggregation)

    def _public(self, rows: beam.PCollection, label: str, value: Any) -> beam.PCollection:
        """Creates a public element in each window of the rows."""
        made = rows.pipeline | label >> beam.Create([value], reshuffle=False)
        if self.windows is None:
            return made
        each = made | f"Each{label}" >> beam.ParDo(EachWindowFn(self.windows))
        return each | f"{label}Windows" >> beam.WindowInto(rows.windowing.windowfn)


def _check_one_run(pipeline: beam.Pipeline) -> None:
    """Refuses graphs that are saved, or that go on with an earlier run."""
    options = pipeline.options.get_all_options()
    kept = next((name for name in _OTHER_RUNS if options.get(name)), None)
    if kept is not None:
        raise ConfigError(
            f"{kept} isn't supported, since a saved graph would repeat its noise, and a run that continues another "
            "would draw noise again for the same rows; start a new pipeline."
        )


def _model(
    state: Any, estimator: DPKMeans, planned: PlannedFit, spent: GraphPrivacy, window: Any = beam.DoFn.WindowParam
) -> DPKMeans:
    """Creates the fitted estimator, from releases and settings only."""
    result = result_of(planned, state.model(), spent, "", None)
    if window != GlobalWindow():
        within = f"{window.start.to_rfc3339()} to {window.end.to_rfc3339()}"
        result = result._replace(privacy=dataclasses.replace(result.privacy, window=within))
    fitted = copy.copy(estimator)
    fitted._take(released_run(planned, result, (), new_run_id()))
    return fitted


def _releases(model: DPKMeans) -> tuple[Release, ...]:
    return model.releases_
