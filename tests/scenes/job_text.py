"""Jobs written out as a user would."""

import pydantic

from schemas.settings import yaml_text


def rendered(config: pydantic.BaseModel) -> str:
    """YAML text with every setting, defaults included."""
    return yaml_text.render(config.model_dump(mode="json"))
