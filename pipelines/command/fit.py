"""The word `fit` stands for two jobs: the private one, and that of the trusted zone; settings say which.

Each is imported when it is asked for, since the other one's libraries would keep the first round waiting.
"""

from typing import Any

from dapple_dp.pipelines.jobs.job import Job, JobChoice
from dapple_dp.schemas.kmeans.fit_config import is_pooled
from dapple_dp.schemas.settings import yaml_text


def _choose(text: str) -> Job[Any, Any, Any]:
    """Algorithms without privacy are jobs of the trusted zone."""
    if is_pooled(yaml_text.parse(text)):
        from dapple_dp.pipelines.trusted_zone import pooled_fit

        return pooled_fit.JOB
    from dapple_dp.pipelines.kmeans import fit

    return fit.JOB


JOB = JobChoice(name="fit", choose=_choose)
