"""Jobs of the command `topics`, from YAML."""

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.spherical_config import SphericalFit
from dapple_dp.schemas.settings import yaml_text


def load_topics(text: str) -> SphericalFit:
    """Parses a private fit with named clusters from YAML text; raises ConfigError, one sentence."""
    result = validated(yaml_text.parse(text))  # type: ignore[arg-type]
    if not isinstance(result, SphericalFit) or result.names is None:
        got = f"algorithm {result.algorithm}" if not isinstance(result, SphericalFit) else "no names"
        raise ConfigError(
            f"topics needs algorithm spherical and a names section with column and vocabulary, got {got}; use "
            "`dapple fit` for clusters without names."
        )
    return result
