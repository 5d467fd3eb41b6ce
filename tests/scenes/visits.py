"""Visits as a hospital exports them: several of one patient, labs with holes, codes and dates."""

import pathlib

import numpy as np
import pandas as pd

N_PATIENTS, VISITS_EACH = 200, 3


def write(path: pathlib.Path) -> pd.DataFrame:
    """Writes the rows as CSV; returns them."""
    rng, n = np.random.default_rng(11), N_PATIENTS * VISITS_EACH
    stage = np.arange(n) // VISITS_EACH % 2
    visits = pd.DataFrame(
        {
            "patient": [f"P{visit // VISITS_EACH:05d}" for visit in range(n)],
            "age": (np.array([35, 75])[stage] + rng.integers(-8, 9, n)).astype(int),
            "creatinine_mg_dl": np.round(np.array([0.8, 2.6])[stage] + rng.normal(0, 0.1, n), 2),
            "hba1c": np.round(np.array([5.2, 8.4])[stage] + rng.normal(0, 0.3, n), 1),
            "sex": rng.choice(list("MF"), n),
            "icd10": rng.choice(["I10", "E11.9", "N18.3", "J44.9"], n),
            "admitted": pd.to_datetime("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D"),
        }
    )
    visits.loc[rng.random(n) < 0.35, "hba1c"] = np.nan
    visits.loc[rng.random(n) < 0.20, "creatinine_mg_dl"] = np.nan
    visits.to_csv(path, index=False)
    return visits
