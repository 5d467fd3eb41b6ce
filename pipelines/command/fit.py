"""The command `fit`, which runs the private or the pooled job, depending on the settings.

Each job is imported on demand, since the libraries of the other one would only delay the start.
"""

from typing import Any

from dapple_dp.pipelines.jobs.job import Job, JobChoice
from dapple_dp.schemas.kmeans.fit_config import is_pooled
from dapple_dp.schemas.settings import yaml_text


def _choose(text: str) -> Job[Any, Any, Any]:
    """Returns the pooled job for algorithms without privacy, otherwise the private one."""
    if is_pooled(yaml_text.parse(text)):
        from dapple_dp.pipelines.trusted_zone import pooled_fit

        return pooled_fit.JOB
    from dapple_dp.pipelines.kmeans import fit

    return fit.JOB


JOB = JobChoice(name="fit", choose=_choose)
