"""Job configs survive being written as YAML, whatever they name."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.kmeans.fit_config import load_config, validated
from tests.scenes import job_text, lake

_NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name.isprintable())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    features=st.lists(_NAMES, min_size=1, max_size=4, unique=True),
    partitions=st.dictionaries(_NAMES, _NAMES | st.integers(), max_size=3),
    epsilon=st.floats(min_value=1e-6, max_value=1e6),
)
def test_any_names_and_numbers_survive_yaml(features, partitions, epsilon):
    job = lake.job("lake", "server.parquet", data__features=features, data__partitions=partitions)
    job["privacy"]["epsilon"] = epsilon
    config = validated(job)
    assert load_config(job_text.rendered(config)) == config
