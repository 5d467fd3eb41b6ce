"""`python -m examples.customers.make_customers`: rewrites customers.csv, 4,000 made-up customers of a shop.

Nobody in it exists. The groups are plain, so that a reader can tell whether a clustering has found them.
"""

import csv
import datetime
import pathlib

import numpy as np

PATH = pathlib.Path(__file__).with_name("customers.csv")
N_CUSTOMERS = 4_000
HEADER = ("customer_id", "signup_date", "country", "vat_percent", "age", "visits_per_month", "basket", "online_percent")
GROUPS = {
    "students": ((22, 2.5), (12, 2), (15, 4), (80, 7)),
    "families": ((40, 5), (8, 2), (95, 12), (35, 7)),
    "pensioners": ((71, 5), (16, 2.5), (28, 6), (8, 4)),
    "occasional": ((50, 6), (2, 0.8), (60, 10), (60, 8)),
}
"""Mean and standard deviation of the last four columns, which alone distinguish customers."""
LOWEST, HIGHEST = (18, 0, 1, 0), (99, 31, 400, 100)


def rows(seed: int = 2026) -> list[tuple[object, ...]]:
    """All customers, in the order of their ids; the same seed gives the same ones."""
    rng = np.random.default_rng(seed)
    groups = np.array(list(GROUPS.values()))[rng.choice(len(GROUPS), N_CUSTOMERS, p=[0.3, 0.3, 0.2, 0.2])]
    numbers = np.clip(rng.normal(groups[:, :, 0], groups[:, :, 1]), LOWEST, HIGHEST)
    days = rng.integers(0, 3_000, N_CUSTOMERS)
    found: list[tuple[object, ...]] = []
    for index, (age, visits, basket, online) in enumerate(numbers.tolist()):
        signup = datetime.date(2018, 1, 1) + datetime.timedelta(days=int(days[index]))
        found.append((100_001 + index, signup, "CH", 8.1, round(age), round(visits), f"{basket:.2f}", round(online)))
    return found


def main() -> None:
    """Writes the file."""
    with PATH.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *rows()])


if __name__ == "__main__":
    main()
