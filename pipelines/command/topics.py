"""The word `topics`: a private fit whose clusters get names."""

import dataclasses
from typing import Any

from pipelines.command import settings
from pipelines.jobs.job import Job
from pipelines.kmeans import fit

JOB: Job[Any, Any, Any] = dataclasses.replace(fit.JOB, name="topics", load=settings.topics)
