"""An auditor that is not ours: the one of `jax-privacy`, a package of Google DeepMind, on the scores of our audit.

The package is installed without what it brings along (`requirements-audit.txt`). Its module of audits needs NumPy,
SciPy and dp_accounting only, but importing the package imports JAX, so this file loads that one module by its path.
"""

import importlib.metadata
import importlib.util
import sys
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

_PACKAGE, _FILE = "jax-privacy", "jax_privacy/auditing.py"
_CHOICE_PART = 1.0 / 3.0


def _auditing() -> ModuleType:
    """The module of audits, loaded once."""
    name = "_auditing_of_jax_privacy"
    if name not in sys.modules:
        path = importlib.metadata.distribution(_PACKAGE).locate_file(_FILE)
        spec = importlib.util.spec_from_file_location(name, str(path))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def audited_epsilon(
    without: NDArray[np.float64], with_canary: NDArray[np.float64], delta: float, failure: float
) -> float:
    """The other auditor's lower bound on epsilon; it exceeds the true one with a probability of at most `failure`.

    The auditor knows one score at a time. Each of them is audited on its own with its part of `failure`, and the
    largest bound counts. The auditor chooses a threshold on a third of the runs, among all values that occur, and
    counts hits and false alarms on the rest, in both directions.

    Args:
      without: shape (n_scores, n_runs): scores, fixed beforehand, of releases without the canary.
      with_canary: the same with it.
      delta: of the claim.
      failure: in (0, 0.5).
    """
    auditing = _auditing()
    split = auditing.Split(threshold_estimation_frac=_CHOICE_PART, seed=0)
    bounds = [
        auditing.CanaryScoreAuditor(present, absent).epsilon_clopper_pearson(
            failure / len(without), delta, one_sided=False, threshold_strategy=split
        )
        for absent, present in zip(without, with_canary, strict=True)
    ]
    return float(max(bounds))
