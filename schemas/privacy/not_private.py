"""What outputs without a guarantee say of themselves: they come from exact rows and stay in the trusted zone."""

import json

NOT_PRIVATE = {"private": False, "label": "evaluation (not private)"}
NOT_PRIVATE_METADATA = {f"dapple.{name}": json.dumps(value) for name, value in NOT_PRIVATE.items()}
"""The same as key-value metadata of a Parquet file."""
