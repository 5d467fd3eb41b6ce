"""The word `fit` stands for two jobs: the private one, and that of the trusted zone; settings tell which."""

from typing import Any

from pipelines.kmeans import fit
from pipelines.run.jobs.job import Job, JobChoice
from pipelines.trusted_zone import pooled_fit
from schemas.kmeans.pooled_config import is_pooled
from schemas.settings import yaml_text


def _choose(text: str) -> Job[Any, Any, Any]:
    """Algorithms without privacy are jobs of the trusted zone."""
    return pooled_fit.JOB if is_pooled(yaml_text.parse(text)) else fit.JOB


JOB = JobChoice(name="fit", choose=_choose)
