"""The command `topics`: a private fit whose clusters get names."""

import dataclasses
from typing import Any

from dapple_dp.pipelines.jobs.job import Job
from dapple_dp.pipelines.kmeans import fit
from dapple_dp.schemas.kmeans.jobs.topics_config import load_topics

JOB: Job[Any, Any, Any] = dataclasses.replace(fit.JOB, name="topics", load=load_topics)
