"""Jobs for Dataflow without Google: Beam's own code translates each pipeline, which then runs in memory.

What is left out is what needs the service: the checks of buckets, sending the job, and waiting for it.
"""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, TestOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import PipelineResult, create_runner

IMAGE = "europe-docker.pkg.dev/a-project/images/dapple:1"
FLAGS = (
    "--runner=DataflowRunner",
    "--project=a-project",
    "--region=europe-west4",
    "--temp_location=gs://lake/temp",
    "--staging_location=gs://lake/staging",
    f"--sdk_container_image={IMAGE}",
    "--no_auth",
)


class Translated(NamedTuple):
    """Request that would be sent for one pipeline.

    Attributes:
      graph: the translated pipeline.
      request: that makes the job, as JSON.
      staged: files that are put into the bucket before, by name; the graph is one of them.
    """

    graph: beam_runner_api_pb2.Pipeline
    request: bytes
    staged: dict[str, bytes]

    @property
    def images(self) -> list[str]:
        """The image of each environment, none of which is anything but a container."""
        found = list(self.graph.components.environments.values())
        assert {each.urn for each in found} == {common_urns.environments.DOCKER.urn}
        return [beam_runner_api_pb2.DockerPayload.FromString(each.payload).container_image for each in found]

    @property
    def n_transforms(self) -> int:
        """Steps without parts."""
        return sum(not each.subtransforms for each in self.graph.components.transforms.values())

    @property
    def n_side_inputs(self) -> int:
        """Number of side inputs of all steps."""
        steps = [each.spec for each in self.graph.components.transforms.values()]
        steps = [each for each in steps if each.urn == common_urns.primitives.PAR_DO.urn]
        return sum(len(beam_runner_api_pb2.ParDoPayload.FromString(each.payload).side_inputs) for each in steps)

    @property
    def n_unbounded(self) -> int:
        """Collections without an end."""
        collections = self.graph.components.pcollections.values()
        return sum(each.is_bounded != beam_runner_api_pb2.IsBounded.BOUNDED for each in collections)


@contextlib.contextmanager
def translating() -> Iterator[list[Translated]]:
    """Pipelines for Dataflow that are run meanwhile."""
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

    found: list[Translated] = []
    translate = DataflowRunner.run_pipeline

    def run(self: Any, pipeline: beam.Pipeline, options: PipelineOptions, pipeline_proto: Any = None) -> PipelineResult:
        # Beam changes the pipeline when it translates it.
        copy = beam.Pipeline.from_runner_api(pipeline.to_runner_api(), self, options)
        options.view_as(TestOptions).dry_run = True
        job = translate(self, copy, options).job
        options.view_as(TestOptions).dry_run = False
        found.append(Translated(job.proto_pipeline, *_described(job, options)))
        return create_runner("FnApiRunner").run_pipeline(pipeline, options)

    with (
        mock.patch.object(DataflowRunner, "run_pipeline", run),
        mock.patch.object(GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled"),
    ):
        yield found


def _described(job: Any, options: PipelineOptions) -> tuple[bytes, dict[str, bytes]]:
    """The request for a job, and the files that are staged before it is sent."""
    from apache_beam.runners.dataflow.internal.apiclient import DataflowApplicationClient

    staged: dict[str, bytes] = {}

    def stage(self: Any, folder: str, name: str, content: Any, **_: Any) -> None:
        staged[name] = pathlib.Path(content).read_bytes() if isinstance(content, str) else content.read()

    with mock.patch.object(DataflowApplicationClient, "stage_file_with_retry", stage):
        DataflowApplicationClient(options, job.root_staging_location).create_job_description(job)
    return job.json().encode(), staged
