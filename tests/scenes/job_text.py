"""Jobs written out as a user would."""

import pydantic

from dapple_dp.schemas.settings import yaml_text


def rendered(config: pydantic.BaseModel) -> str:
    """YAML text with every setting, defaults included."""
    return yaml_text.render(config.model_dump(mode="json"))
