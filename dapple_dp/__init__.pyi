"""The public names and where they are; `__init__.py` imports each from there when it is asked for."""

from dapple_dp.api import DecodeResult as DecodeResult
from dapple_dp.api import FitResult as FitResult
from dapple_dp.api import ProfileResult as ProfileResult
from dapple_dp.api import assign as assign
from dapple_dp.api import decode as decode
from dapple_dp.api import evaluate as evaluate
from dapple_dp.api import fit as fit
from dapple_dp.api import profile as profile
from dapple_dp.estimator.clusters_display import ClustersDisplay as ClustersDisplay
from dapple_dp.estimator.dp_kmeans import DPKMeans as DPKMeans
from dapple_dp.estimator.dp_topics import DPTopics as DPTopics
from dapple_dp.estimator.ledger import Ledger as Ledger
from dapple_dp.estimator.private_scaler import PrivateScaler as PrivateScaler
from dapple_dp.integrations.beam_yaml import DappleAssign as DappleAssign
from dapple_dp.integrations.beam_yaml import DappleDecodeReports as DappleDecodeReports
from dapple_dp.integrations.beam_yaml import DappleEncodeReports as DappleEncodeReports
from dapple_dp.integrations.beam_yaml import DappleFit as DappleFit
from dapple_dp.integrations.model_handler import DappleModelHandler as DappleModelHandler
from dapple_dp.integrations.table_out import write_delta as write_delta
from dapple_dp.integrations.table_out import write_iceberg as write_iceberg
from dapple_dp.pipelines.jobs.lineage import lineage_event as lineage_event
from dapple_dp.schemas.errors import BudgetExceededError as BudgetExceededError
from dapple_dp.schemas.errors import ConfigError as ConfigError
from dapple_dp.schemas.errors import DappleError as DappleError
from dapple_dp.schemas.errors import InputError as InputError
from dapple_dp.schemas.errors import LedgerRefusedError as LedgerRefusedError
from dapple_dp.schemas.errors import PrivacyFlowError as PrivacyFlowError
from dapple_dp.schemas.errors import PrivacyWarning as PrivacyWarning
from dapple_dp.schemas.errors import ProtocolError as ProtocolError
from dapple_dp.schemas.errors import RunnerError as RunnerError
from dapple_dp.schemas.kmeans.fit_config import validated as validated
from dapple_dp.schemas.kmeans.jobs.all_fits import FitConfig as FitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel as ClusterModel
from dapple_dp.schemas.privacy.statement import PrivacyStatement as PrivacyStatement
from dapple_dp.schemas.profile.config import ProfileConfig as ProfileConfig
from dapple_dp.schemas.profile.plan import clusters_of as clusters_of
from dapple_dp.schemas.reports.config import DecodeConfig as DecodeConfig
from dapple_dp.schemas.trusted_zone.job_configs import AssignConfig as AssignConfig
from dapple_dp.schemas.trusted_zone.job_configs import EvaluateConfig as EvaluateConfig
from dapple_dp.schemas.trusted_zone.metrics import Metrics as Metrics

__version__: str
