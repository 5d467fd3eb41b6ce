"""Dapple from Python: differentially private federated clustering on Apache Beam.

`from dapple_dp import DPKMeans` is the estimator; `fit`, `assign`, `evaluate`, `profile` and `decode` are the jobs of
the command, each with the class or function that checks its settings. Everything is imported when it is first asked
for, and comes from Dapple's own packages even where another `pipelines`, `transforms` or `schemas` is on the path.
"""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from dapple_dp import own_packages as _own_packages
from dapple_dp import quiet_import as _quiet_import

if TYPE_CHECKING:
    from dapple_dp.api import (
        DecodeResult,
        DPKMeans,
        FitResult,
        PrivateScaler,
        ProfileResult,
        assign,
        decode,
        evaluate,
        fit,
        profile,
    )
    from dapple_dp.integrations.beam_yaml import DappleAssign, DappleDecodeReports, DappleEncodeReports, DappleFit
    from dapple_dp.integrations.lineage import lineage_event
    from dapple_dp.integrations.model_handler import DappleModelHandler
    from dapple_dp.integrations.table_out import write_delta, write_iceberg
    from schemas.errors import (
        BudgetExceededError,
        ConfigError,
        DappleError,
        InputError,
        LedgerRefusedError,
        PrivacyFlowError,
        PrivacyWarning,
        ProtocolError,
        RunnerError,
    )
    from schemas.kmeans.fit_config import FitConfig, validated
    from schemas.kmeans.model import ClusterModel
    from schemas.privacy.statement import PrivacyStatement
    from schemas.profile.config import ProfileConfig
    from schemas.profile.result import clusters_of
    from schemas.reports.config import DecodeConfig
    from schemas.trusted_zone.assign_config import AssignConfig
    from schemas.trusted_zone.evaluate_config import EvaluateConfig
    from schemas.trusted_zone.metrics import Metrics

    __version__: str

__all__ = [
    "AssignConfig",
    "BudgetExceededError",
    "ClusterModel",
    "ConfigError",
    "DPKMeans",
    "DappleAssign",
    "DappleDecodeReports",
    "DappleEncodeReports",
    "DappleError",
    "DappleFit",
    "DappleModelHandler",
    "DecodeConfig",
    "DecodeResult",
    "EvaluateConfig",
    "FitConfig",
    "FitResult",
    "InputError",
    "LedgerRefusedError",
    "Metrics",
    "PrivacyFlowError",
    "PrivacyStatement",
    "PrivacyWarning",
    "PrivateScaler",
    "ProfileConfig",
    "ProfileResult",
    "ProtocolError",
    "RunnerError",
    "assign",
    "clusters_of",
    "decode",
    "evaluate",
    "fit",
    "lineage_event",
    "profile",
    "validated",
    "write_delta",
    "write_iceberg",
]

_HOMES = {
    "dapple_dp.api": (
        "DPKMeans",
        "DecodeResult",
        "FitResult",
        "PrivateScaler",
        "ProfileResult",
        "assign",
        "decode",
        "evaluate",
        "fit",
        "profile",
    ),
    "dapple_dp.integrations.beam_yaml": ("DappleAssign", "DappleDecodeReports", "DappleEncodeReports", "DappleFit"),
    "dapple_dp.integrations.lineage": ("lineage_event",),
    "dapple_dp.integrations.table_out": ("write_delta", "write_iceberg"),
    "schemas.errors": (
        "BudgetExceededError",
        "ConfigError",
        "DappleError",
        "InputError",
        "LedgerRefusedError",
        "PrivacyFlowError",
        "PrivacyWarning",
        "ProtocolError",
        "RunnerError",
    ),
    "schemas.kmeans.fit_config": ("FitConfig", "validated"),
    "schemas.kmeans.model": ("ClusterModel",),
    "schemas.privacy.statement": ("PrivacyStatement",),
    "schemas.profile.config": ("ProfileConfig",),
    "schemas.profile.result": ("clusters_of",),
    "schemas.reports.config": ("DecodeConfig",),
    "schemas.trusted_zone.assign_config": ("AssignConfig",),
    "schemas.trusted_zone.evaluate_config": ("EvaluateConfig",),
    "schemas.trusted_zone.metrics": ("Metrics",),
    "dapple_dp.integrations.model_handler": ("DappleModelHandler",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """What is asked for the first time; raises ForeignPackageError if a package of Dapple is another's."""
    if name == "__version__":
        found: Any = _version()
    elif name in _HOME_OF:
        _own_packages.claim()
        with _quiet_import.without_gaps():
            found = getattr(importlib.import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def _version() -> str:
    """Of the installed distribution, or "unknown" where none is."""
    try:
        return importlib.metadata.version(_own_packages.DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__"])
