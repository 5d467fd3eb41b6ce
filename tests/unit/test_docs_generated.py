"""The pages of the reference that follow from the code are up to date, and the README stays short."""

import importlib.util
import pathlib
import warnings

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp import DPKMeans, PrivacyWarning, PrivateScaler
from dapple_dp.schemas import errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_README_LINES = 150


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generated", ROOT / "docs" / "generated.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_up_to_date(generated, tmp_path):
    generated.write(tmp_path)
    for page in tmp_path.iterdir():
        committed = ROOT / "docs" / "reference" / page.name
        assert committed.read_text() == page.read_text(), f"run python docs/generated.py to renew {page.name}"


def test_every_setting_is_described(generated):
    for job, model in generated.JOBS.items():
        for name, field in generated._fields(model):
            assert field.description, f"{job}: {name}"


def test_every_error_has_its_exit_code_on_the_page(generated):
    page = generated.exit_codes_page()
    for each in generated._errors():
        assert each is errors.DappleError or f"`{each.__name__}`" in page


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_README_LINES


def test_the_attributes_of_the_api_page_are_those_of_a_fitted_model(generated):
    """Docstrings name what `fit` sets; the build of the site compares its page with the docstrings."""
    rows = pa.table(dict(zip("ab", np.random.default_rng(0).random((2, 200)), strict=True)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        model = DPKMeans(2, epsilon=8.0, delta=1e-6, domain=(0, 1)).fit(rows)
    for fitted in (model, PrivateScaler(bounds=(0, 1)).fit(rows)):
        found = {name for name in vars(fitted) if name.endswith("_") and name[0] != "_"}
        assert set(generated.learned_names()[type(fitted).__name__]) == found


def test_a_page_that_loses_underscores_is_found(generated):
    names = [name for names in generated.learned_names().values() for name in names]
    whole = " ".join(f"<strong>{name}</strong>" for name in names)
    assert generated.lost_names(whole) == []
    assert generated.lost_names(whole.replace("privacy_<", "privacy<")) == ["DPKMeans.privacy_"]
    assert len(generated.lost_names(whole.replace("_<", "<"))) == len(names) >= 10
