"""The handler inside Beam's RunInference: models arrive by side input, and a job's graph may not hold it."""

import apache_beam as beam
import pytest
from apache_beam.ml.inference.base import ModelMetadata, RunInference

from dapple_dp import DappleModelHandler, PrivacyFlowError
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.core.plan import Promise, Zone
from tests.scenes.nights import ROWS, run_two_nights, two_nights


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    return two_nights(tmp_path_factory.mktemp("nights"))


def test_rows_are_assigned_by_the_model_of_the_side_input(nights):
    first, second = nights
    handler = DappleModelHandler(first, on_invalid_rows="drop", max_batch_size=2)
    found = []
    with beam.Pipeline(options=beam_options(["--no_pipeline_type_check"])) as pipeline:
        rows = pipeline | "Rows" >> beam.Create(ROWS)
        tell = pipeline | "Model" >> beam.Create([ModelMetadata(model_id=f"{second}/run.json", model_name="second")])
        found = [
            rows | "First" >> RunInference(handler),
            rows | "Second" >> RunInference(handler, model_metadata_pcoll=tell),
        ]
        for model, results, expected in zip(nights, found, ([1, 0, None], [0, 1, None]), strict=True):
            _ = (
                results
                | f"Plain {model}" >> beam.Map(lambda each: (each.example["age"], each.inference, each.model_id))
                | f"All {model}" >> beam.combiners.ToList()
                | f"Check {model}" >> beam.Map(check, list(zip([61, 22, None], expected, [model] * 3, strict=True)))
            )


def test_a_new_night_goes_live_while_the_pipeline_runs(nights):
    run_two_nights(nights, ["--no_pipeline_type_check"])


def check(found, expected):
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_graph_of_dapple_may_not_hold_the_handler(nights):
    def build(pipeline):
        _ = pipeline | beam.Create(ROWS) | RunInference(DappleModelHandler(nights[0]))

    for zone in Zone:
        with pytest.raises(PrivacyFlowError, match="must run audited code"):
            run_graph(build, beam_options([]), Promise(zone=zone))
