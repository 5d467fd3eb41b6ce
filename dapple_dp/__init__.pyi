"""The public names and where they are; `__init__.py` imports each from there when it is asked for."""

from dapple_dp.api import DecodeResult as DecodeResult
from dapple_dp.api import DPKMeans as DPKMeans
from dapple_dp.api import DPTopics as DPTopics
from dapple_dp.api import FitResult as FitResult
from dapple_dp.api import PrivateScaler as PrivateScaler
from dapple_dp.api import ProfileResult as ProfileResult
from dapple_dp.api import assign as assign
from dapple_dp.api import decode as decode
from dapple_dp.api import evaluate as evaluate
from dapple_dp.api import fit as fit
from dapple_dp.api import profile as profile
from dapple_dp.integrations.beam_yaml import DappleAssign as DappleAssign
from dapple_dp.integrations.beam_yaml import DappleDecodeReports as DappleDecodeReports
from dapple_dp.integrations.beam_yaml import DappleEncodeReports as DappleEncodeReports
from dapple_dp.integrations.beam_yaml import DappleFit as DappleFit
from dapple_dp.integrations.model_handler import DappleModelHandler as DappleModelHandler
from dapple_dp.integrations.table_out import write_delta as write_delta
from dapple_dp.integrations.table_out import write_iceberg as write_iceberg
from pipelines.jobs.lineage import lineage_event as lineage_event
from schemas.errors import BudgetExceededError as BudgetExceededError
from schemas.errors import ConfigError as ConfigError
from schemas.errors import DappleError as DappleError
from schemas.errors import InputError as InputError
from schemas.errors import LedgerRefusedError as LedgerRefusedError
from schemas.errors import PrivacyFlowError as PrivacyFlowError
from schemas.errors import PrivacyWarning as PrivacyWarning
from schemas.errors import ProtocolError as ProtocolError
from schemas.errors import RunnerError as RunnerError
from schemas.kmeans.fit_config import FitConfig as FitConfig
from schemas.kmeans.fit_config import validated as validated
from schemas.kmeans.model import ClusterModel as ClusterModel
from schemas.privacy.statement import PrivacyStatement as PrivacyStatement
from schemas.profile.config import ProfileConfig as ProfileConfig
from schemas.profile.plan import clusters_of as clusters_of
from schemas.reports.config import DecodeConfig as DecodeConfig
from schemas.trusted_zone.job_configs import AssignConfig as AssignConfig
from schemas.trusted_zone.job_configs import EvaluateConfig as EvaluateConfig
from schemas.trusted_zone.metrics import Metrics as Metrics

__version__: str
