"""The word `topics`: a private fit whose clusters get names."""

import dataclasses
from typing import Any

from dapple_dp.pipelines.command import settings
from dapple_dp.pipelines.jobs.job import Job
from dapple_dp.pipelines.kmeans import fit

JOB: Job[Any, Any, Any] = dataclasses.replace(fit.JOB, name="topics", load=settings.topics)
