"""The word `fit` stands for two jobs: the private one, and that of the trusted zone; settings say which.

Each is imported when it is asked for, since the other one's libraries would keep the first round waiting.
"""

from typing import Any

from pipelines.jobs.job import Job, JobChoice
from schemas.kmeans.pooled_config import is_pooled
from schemas.settings import yaml_text


def _choose(text: str) -> Job[Any, Any, Any]:
    """Algorithms without privacy are jobs of the trusted zone."""
    if is_pooled(yaml_text.parse(text)):
        from pipelines.trusted_zone import pooled_fit

        return pooled_fit.JOB
    from pipelines.kmeans import fit

    return fit.JOB


JOB = JobChoice(name="fit", choose=_choose)
