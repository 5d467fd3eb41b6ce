"""Draws the fit on the front page, docs/_build/fit.svg, when the site is built; each drawing has its own noise."""

import pathlib

import numpy as np

from dapple_dp import DPKMeans

OUT = pathlib.Path(__file__).resolve().parent / "_build" / "fit.svg"
WIDTH, HEIGHT, SHOWN, K = 480, 320, 700, 5
EPSILON = 1.0


def rows(rng: np.random.Generator) -> np.ndarray:
    """Returns 20,000 made-up people: age and hours of work, shape (20000, 2)."""
    means = np.array([[24.0, 20.0], [34.0, 46.0], [56.0, 36.0], [68.0, 10.0], [84.0, 30.0]])
    spread = np.array([[4.0, 5.0], [4.0, 4.0], [4.0, 4.0], [4.0, 4.0], [3.0, 4.0]])
    kinds = rng.choice(K, 20_000, p=[0.2, 0.3, 0.2, 0.2, 0.1])
    return np.clip(rng.normal(means[kinds], spread[kinds]), (0.0, 0.0), (100.0, 60.0))


def drawn(points: np.ndarray, centers: np.ndarray, sizes: np.ndarray) -> str:
    """Returns an SVG that suits light and dark pages: rows as dots, centers as crosses with their noisy sizes."""
    low, high = np.array([10.0, 0.0]), np.array([95.0, 60.0])

    def at(point: np.ndarray) -> tuple[float, float]:
        x, y = (point - low) / (high - low)
        return round(30 + x * (WIDTH - 40), 1), round((HEIGHT - 40) * (1 - y) + 10, 1)

    dots = "".join("<circle cx='{}' cy='{}' r='1.6'/>".format(*at(point)) for point in points)
    marks = "".join("<path d='M{} {}m-6-6l12 12m0-12l-12 12'/>".format(*at(center)) for center in centers)
    texts = "".join(
        f"<text x='{at(center)[0]}' y='{at(center)[1] - 12}'>{size:,.0f}</text>"
        for center, size in zip(centers, sizes, strict=True)
    )
    return f"""<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' font-family='sans-serif'>
<title>{SHOWN} of 20,000 made-up rows, and five centers with noisy sizes at epsilon {EPSILON:g}</title>
<path d='M30 10V{HEIGHT - 30}H{WIDTH - 10}' fill='none' stroke='#888'/>
<g fill='#888' font-size='12'><text x='{WIDTH - 34}' y='{HEIGHT - 12}'>age</text><text x='36' y='20'>hours</text></g>
<g fill='#5b8fd6' fill-opacity='.45'>{dots}</g>
<g stroke='#e0582f' stroke-width='3.5' stroke-linecap='round'>{marks}</g>
<g fill='#e0582f' font-size='13' font-weight='bold' text-anchor='middle'>{texts}</g>
</svg>
"""


def write() -> None:
    """Fits the rows, and writes the picture."""
    people = rows(np.random.default_rng(7))
    model = DPKMeans(K, epsilon=EPSILON, delta=1e-6, domain=[(0, 100), (0, 60)]).fit(people)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(drawn(people[:SHOWN], model.cluster_centers_, model.noisy_sizes_))
