"""`python -m examples.hospitals.make_cohort FOLDER`: writes visits of made-up patients of three hospitals, a CSV each.

Nobody in it exists. As in real exports, each hospital has its own order of columns and a column of its own, a patient
has several visits, and labs that nobody asked for are empty. The groups are plain, so that a reader can tell whether a
clustering has found them.
"""

import csv
import datetime
import pathlib
import sys

import numpy as np

N_PATIENTS = 5_000
"""In each hospital."""
MOST_VISITS = 3
GROUPS = {
    "check-up": ("Z00.0", (50, 0.9, 140, 4.2, 14.0, 3, 95, 42, 1.0)),
    "diabetes": ("E11.9", (60, 1.1, 138, 4.4, 13.5, 8, 240, 40, 1.4)),
    "kidneys": ("N18.4", (70, 4.5, 134, 5.6, 10.0, 12, 110, 36, 1.2)),
    "infection": ("A41.9", (55, 1.6, 132, 4.0, 11.5, 190, 140, 26, 4.5)),
}
"""ICD-10 code, and means of age and labs."""
LABS = ("creatinine", "sodium", "potassium", "hemoglobin", "crp", "glucose", "albumin", "lactate")
SPREADS = (9, 0.25, 2.5, 0.3, 0.9, 15, 18, 2.5, 0.4)
LOWEST, HIGHEST = (18, 0.2, 115, 2.5, 5, 0, 40, 15, 0.3), (99, 10, 160, 7.5, 20, 400, 500, 55, 15)
DIGITS = (0, 2, 0, 1, 1, 0, 0, 0, 1)
HOSPITALS = {
    "north": ("patient", "visit_date", "icd10", "age", *LABS, "ward"),
    "east": ("visit_date", "patient", *reversed(LABS), "age", "icd10", "insurer"),
    "south": ("icd10", *LABS[3:], *LABS[:3], "age", "referred_by", "patient", "visit_date"),
}
"""Columns of each hospital, in its own order."""
OWN = {"ward": ("A1", "B2"), "insurer": ("public", "private"), "referred_by": ("", "GP")}
MISSING = 0.12


def visits(hospital: str, n_patients: int = N_PATIENTS) -> list[dict[str, object]]:
    """All visits of a hospital, or those of its first patients; the same each time."""
    number = list(HOSPITALS).index(hospital)
    rng = np.random.default_rng([2026, number])
    names = list(GROUPS)
    found = []
    for patient in range(n_patients):
        code, means = GROUPS[names[rng.choice(len(names), p=[0.4, 0.25, 0.15, 0.2])]]
        own = np.array(means) + rng.normal(0, np.array(SPREADS) * 0.7)
        day = datetime.date(2025, 1, 1) + datetime.timedelta(days=int(rng.integers(0, 300)))
        for visit in range(int(rng.integers(1, MOST_VISITS + 1))):
            values = np.clip(own + rng.normal(0, np.array(SPREADS) * 0.7), LOWEST, HIGHEST)
            texts = [f"{value:.{digits}f}" for value, digits in zip(values.tolist(), DIGITS, strict=True)]
            held = rng.random(len(LABS)) >= MISSING
            labs = dict(
                zip(LABS, (text if there else "" for text, there in zip(texts[1:], held, strict=True)), strict=True)
            )
            row: dict[str, object] = {"patient": f"{hospital[0].upper()}{patient:05d}", "age": texts[0], "icd10": code}
            row["visit_date"] = day + datetime.timedelta(days=20 * visit)
            own_columns = {name: str(rng.choice(choices)) for name, choices in OWN.items()}
            found.append(row | labs | own_columns)
    return found


def write(path: pathlib.Path, hospital: str, n_patients: int = N_PATIENTS) -> None:
    """Writes what a hospital exports, in its order of columns."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, HOSPITALS[hospital], extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(visits(hospital, n_patients))


def main(folder: str) -> None:
    """Writes `HOSPITAL.csv` for each hospital."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for hospital in HOSPITALS:
        write(pathlib.Path(folder, f"{hospital}.csv"), hospital)


if __name__ == "__main__":
    main(*sys.argv[1:])
