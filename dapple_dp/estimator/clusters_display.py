"""Plots of released clusters, in the style of scikit-learn's displays."""

import dataclasses
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dapple_dp.estimator.dp_kmeans import DPKMeans
from dapple_dp.estimator.memory_rows import made_names
from dapple_dp.pipelines.kmeans.report.center_summary import CenterSummary
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.errors import what_installs

_MOST_CLUSTERS = 30
_MOST_COLUMNS = 6


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class ClustersDisplay:
    """Plot of a fit's noisy sizes and centers, with whiskers of two noise stddevs; everything in it was released.

    Create it with `from_estimator`, and draw it with `plot`.

    Args:
      sizes: shape (k,): noisy sizes.
      size_noise: shape (k,): noise stddev of each size; NaN if unknown.
      centers: shape (k, d), in the units of the columns.
      center_noise: shape (k, d): noise stddev of each coordinate, in the same units; NaN if unknown.
      columns: names of the d columns.
      counted: the counted unit, such as "rows".
      summary: the clusters that may be empty, and the columns in which centers differ most.

    Attributes:
      ax_: matplotlib axes of the sizes, after `plot`.
      axes_: `ax_`, and the axes of each displayed column.
      figure_: figure that contains them.
    """

    sizes: NDArray[np.float64]
    size_noise: NDArray[np.float64]
    centers: NDArray[np.float64]
    center_noise: NDArray[np.float64]
    columns: tuple[str, ...]
    counted: str
    summary: CenterSummary
    ax_: Any = dataclasses.field(init=False)
    axes_: tuple[Any, ...] = dataclasses.field(init=False)
    figure_: Any = dataclasses.field(init=False)

    @classmethod
    def from_estimator(cls, estimator: DPKMeans) -> Self:
        """Creates a display of the releases of a fit.

        Args:
          estimator: fitted, loaded or unpickled.
        """
        check_is_fitted(estimator)
        run = estimator._run
        model, encoder, noise = run.model, run.encoder, run.model.center_stddevs
        moved = None if encoder is None else encoder.in_units(model.centers + noise)
        columns = (run.names or made_names(len(model.centers.T))) if encoder is None else encoder.labels
        return cls(
            sizes=model.noisy_sizes,
            size_noise=model.size_stddevs,
            centers=run.centers,
            center_noise=noise if moved is None else np.abs(moved - run.centers),
            columns=columns,
            counted=UNITS[run.privacy.unit].size,
            summary=CenterSummary.of(
                model.centers, model.noisy_sizes, columns, model.cluster_numbers, least=2.0 * model.size_stddevs
            ),
        )

    def plot(self, ax: Any = None) -> Self:
        """Draws a panel of sizes, and one for each of the six columns in which centers differ most.

        Clusters that can't be distinguished from empty ones are gray, with their numbers in parentheses. Only the 30
        largest clusters are shown.

        Args:
          ax: axes in a matplotlib grid, such as from `plt.subplots`, to replace by the panels; None for a new figure.

        Returns:
          This display.

        Raises:
          ImportError: if matplotlib isn't installed.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                f"Plotting needs matplotlib, which is not installed; run {what_installs('plot')}."
            ) from error
        clusters = self.summary.largest_clusters(_MOST_CLUSTERS)
        features = np.sort(self.summary.top_features(_MOST_COLUMNS))
        n_panels = 1 + len(features)
        if ax is None:
            self.figure_ = plt.figure(figsize=(2.2 * n_panels, 1.4 + 0.3 * len(clusters)), layout="constrained")
            grid = self.figure_.add_gridspec(1, n_panels)
        else:
            ax.set_axis_off()
            self.figure_, grid = ax.figure, ax.get_subplotspec().subgridspec(1, n_panels)
        self.ax_ = self.figure_.add_subplot(grid[0])
        others = tuple(self.figure_.add_subplot(grid[index], sharey=self.ax_) for index in range(1, n_panels))
        self.axes_ = (self.ax_, *others)
        self._draw(self.ax_, clusters, self.sizes, self.size_noise, f"noisy size, {self.counted}")
        for panel, feature in zip(others, features, strict=True):
            values, noise = self.centers[:, feature], self.center_noise[:, feature]
            self._draw(panel, clusters, values, noise, self.columns[feature])
            panel.tick_params(labelleft=False)
        found, numbers = self.summary.found, self.summary.numbers
        names = [f"{numbers[index]}" if found[index] else f"({numbers[index]})" for index in clusters]
        self.ax_.set_yticks(range(len(clusters)), names)
        self.ax_.set_xlim(left=min(0.0, self.ax_.get_xlim()[0]))
        self.ax_.set(ylabel="cluster", ylim=(len(clusters) - 0.5, -0.5))
        self.ax_.set_title("± 2 noise stddevs", fontsize="small")
        return self

    def _draw(self, panel: Any, clusters: Any, values: Any, noise: Any, label: str) -> None:
        """Draws a mark for each cluster, with a whisker if the noise is known."""
        rows = np.arange(len(clusters))
        for kept, color in ((self.summary.found[clusters], "C0"), (~self.summary.found[clusters], "0.65")):
            reach = np.nan_to_num(2.0 * noise[clusters][kept])
            panel.errorbar(
                values[clusters][kept], rows[kept], xerr=reach, fmt="o", color=color, capsize=3, markersize=4
            )
        known = np.isfinite(noise[clusters]).all()
        panel.set_xlabel(label if known else f"{label}\nnoise unknown")
        panel.grid(axis="x", alpha=0.3)
