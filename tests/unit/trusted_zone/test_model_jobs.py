"""Configs of jobs on a released model."""

import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.trusted_zone.job_configs import load_assign_config, load_evaluate_config
from dapple_dp.schemas.trusted_zone.metrics import Metrics, Separation

DATA = "data: {path: lake, features: [a, b], client_id: id}\n"
FIT = """
algorithm: feddp_kmeans
server_data: {path: server.parquet}
n_clusters: 3
privacy: {unit: record, epsilon: 1.0, delta: 1e-6}
clipping: {norm: server_radius}
"""


def test_defaults():
    config = load_evaluate_config("model: fit\n" + DATA).evaluate
    assert (config.label, config.reference, config.silhouette_rows, config.beside_released) == (None, None, 2000, False)
    assert load_assign_config("model: fit\n" + DATA).id_columns == ("id",)


def test_a_whole_fit_job_may_stand_beside_the_own_settings():
    config = load_assign_config("model: fit\nassign: {id_columns: [b]}\n" + DATA + FIT)
    assert config == load_assign_config("model: fit\nassign: {id_columns: [b]}\n" + DATA)
    assert config.id_columns == ("id", "b")


def test_jobs_on_a_model_may_share_a_file():
    text = "model: fit\nassign: {id_columns: [b]}\nevaluate: {label: y}\n" + DATA
    assert load_assign_config(text).id_columns == ("id", "b")
    assert load_evaluate_config(text).evaluate.label == "y"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "the job must be a mapping of settings, got a list; start with model and data"),
        (DATA, "model is required; give the output folder of a fit"),
        ("model: fit\n", "data is required; give a section with path and the model's features"),
        ("model: fit\n" + DATA + "evaluat: {}\n", "evaluat is not a setting; did you mean evaluate"),
        ("model: fit\n" + DATA + FIT + "evaluat: {}\n", "evaluat is not a setting; did you mean evaluate"),
        ("model: fit\n" + DATA + FIT.replace("3", "0"), "n_clusters must be at least 1, got 0"),
        (
            "model: fit\n" + DATA + "evaluate: {lable: y}\n",
            "evaluate.lable is not a setting; did you mean evaluate.label",
        ),
        ("model: fit\n" + DATA + "evaluate: {silhouette_rows: -1}\n", "evaluate.silhouette_rows must be at least 0"),
        ("model: fit\n" + DATA + "evaluate: {silhouette_rows: 1000000}\n", "silhouette_rows must be at most 20000"),
        ("model: fit\n" + DATA + "evaluate: {beside_released: 1}\n", "evaluate.beside_released must be true or false"),
    ],
)
def test_bad_evaluate_jobs(text, sentence):
    with pytest.raises(ConfigError) as caught:
        load_evaluate_config(text)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("{id_columns: a}", "assign.id_columns must be a list, got 'a'; give a list of columns to copy"),
        (
            "{id_columns: [a, a]}",
            "assign.id_columns must be distinct, without data.client_id and 'cluster', got 'a' twice",
        ),
        ("{id_columns: [id]}", "got 'id' twice; remove it or rename the column."),
        ("{id_columns: ['']}", "must be a non-empty string"),
    ],
)
def test_bad_assign_jobs(options, sentence):
    with pytest.raises(ConfigError) as caught:
        load_assign_config("model: fit\n" + DATA + f"assign: {options}\n")
    assert sentence in str(caught.value)


def test_metrics_without_a_cost_come_back():
    separation = Separation(davies_bouldin=None, calinski_harabasz=1.5, silhouette=None, silhouette_rows=0)
    metrics = Metrics(n_rows=3, cost=None, cluster_sizes=(3, 0), separation=separation)
    assert Metrics.from_json(metrics.to_json()) == metrics
    assert '"cost": null' in metrics.to_json()
    assert '"adjusted_rand"' not in metrics.to_json()
