"""Output of `dapple plan` for people."""

import math
from collections.abc import Sequence
from typing import Any

from dapple_dp.pipelines.plan.sharp_edges import PAGE

_MOST_COLUMNS = 20


def text(summary: dict[str, Any]) -> str:
    """Formats a plan, one fact per line."""
    cost = summary["cost"]
    lines = [
        f"Plan of {summary['config']}: {summary['algorithm']}, privacy unit {summary['unit']}.",
        f"It spends epsilon {summary['epsilon']:.6g} at delta {summary['delta']:g}. No private row was read.",
        f"Assumed number of {_units(summary)}: {summary['assumed']:,}.",
        "",
        "Releases, with the noise of one number:",
        *(_release(each, encoded=summary["encoded"]) for each in summary["releases"]),
        *_follows(summary["releases"]),
        *_noise(summary),
        *summary["found_from"],
        *_shares(summary.get("shares")),
        *_chosen(summary.get("chosen")),
        "",
        f"Expected cost per row: {cost['mean']:.5g} (stddev {cost['stddev']:.2g} from run to run), "
        f"{cost['without_noise']:.5g} without noise, on {summary['simulated_on']}.",
        f"Statistics take about {summary['seconds']:.3g} core seconds and {summary['statistic_bytes']:,} bytes per "
        "bundle, beside one row group per worker; reading rows comes on top.",
        *_stream(summary.get("stream")),
        *_ledger(summary["ledger"]),
        *(_at_epsilons(summary["epsilons"], _units(summary)) if "epsilons" in summary else ()),
        *_accuracy(summary.get("accuracy")),
        *_listed("Warnings:", summary["warnings"]),
        *_listed("Not supported, though it runs:", [f"{each['name']} ({each['tier']})" for each in summary["beyond"]]),
        *_listed(
            f"Sharp edges of this job (the documentation says more under {PAGE!r}):",
            [f"{each['sentence']} ({each['anchor']})" for each in summary["sharp_edges"]],
        ),
        "",
    ]
    return "\n".join(lines)


def _units(summary: dict[str, Any]) -> str:
    return "clients" if summary["unit"] == "client" else "rows"


def _release(each: dict[str, Any], *, encoded: bool) -> str:
    size = " x ".join(map(str, each["shape"]))
    if each["noise_stddev"] is None:
        return f"  {each['path']} ({size}): stddev known after an earlier round"
    unit = each["quantity"]
    noise = f"{each['noise_stddev']:.4g} {unit.replace('feature', 'encoded') if encoded else unit}"
    return f"  {each['path']} ({size}): stddev {noise}{'' if each['fixed'] else ' in the simulation'}"


def _follows(releases: list[dict[str, Any]]) -> list[str]:
    """Notes that some noise is only known during the run."""
    if all(release["fixed"] for release in releases):
        return []
    return ["In the simulation: the run itself decides, since the bound of the sum follows from earlier releases."]


def _noise(summary: dict[str, Any]) -> list[str]:
    lines, share = [], summary["assumed"]
    if summary["columns"]:
        lines += _against_bounds(summary["columns"])
    elif summary["center_noise"] is not None:
        unit = "encoded" if summary["encoded"] else "feature"
        lines.append(f"A coordinate of a center moves by about {summary['center_noise']:.4g} {unit} units.")
    elif summary["unknown_noise"]:
        lines.append(summary["unknown_noise"])
    if summary["size_noise"] is not None:
        seen = f"a cluster of {math.ceil(summary['smallest_cluster'])} or more can be distinguished from an empty one"
        lines.append(f"A size is accurate to about {summary['size_noise']:.4g} of {share:,} {_units(summary)}; {seen}.")
    return lines


def _against_bounds(columns: list[dict[str, Any]]) -> list[str]:
    """Noise of a center coordinate and the bounds of its column; a single line if all columns are alike."""
    kinds = {(column["noise"], column["lower"], column["upper"]) for column in columns}
    if len(kinds) == 1:
        return [f"A coordinate of a center of average size moves by about {_column(columns[0])}."]
    more = [f"  and {len(columns) - _MOST_COLUMNS} more columns"] if len(columns) > _MOST_COLUMNS else []
    lines = (f"  {column['column']}: {_column(column)}" for column in columns[:_MOST_COLUMNS])
    return ["A center of average size moves by about, in the unit of each column:", *lines, *more]


def _column(each: dict[str, Any]) -> str:
    share = each["noise"] / (each["upper"] - each["lower"])
    return f"{each['noise']:.3g}, {share:.2%} of its bounds {each['lower']:,.10g} to {each['upper']:,.10g}"


def _shares(found: dict[str, Any] | None) -> list[str]:
    """Describes the variance of split noise."""
    if found is None:
        return []
    if found["dropout"] is None:
        return [f"Clients split the noise: a sum of m messages has m / {found['threshold']:,} times this variance."]
    most, least = f"{found['nobody_gone']:.2f}", f"{found['most_gone']:.2f}"
    when = "" if most == least else f" if nobody drops out, and {least} times if {found['dropout']:.0%} do"
    return [f"Clients split the noise, and all shares are kept: a sum has {most} times this variance{when}."]


def _chosen(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    shares = ", ".join(f"{name} {share:.3g}" for name, share in found["shares"].items())
    rounds = found["lloyd"]["steps"]
    return [f"Chosen on simulated rows: space {found['space']}; shares {shares}; Lloyd rounds {rounds}."]


def _stream(found: dict[str, Any] | None) -> list[str]:
    """Compares the noise of a stream with that of a memory alone."""
    if found is None:
        return []
    apart = "" if found["apart"] is None else f", {found['apart']} apart at least"
    lines = [
        "",
        f"Epoch of {found['windows']} windows: epsilon is of all of them, and a unit counts in {found['counted']} of "
        f"them at most{apart}.",
        "Noise of what is remembered of a cluster over what units add to it, for one unit a window:",
    ]
    for habit, noise in found["noise"].items():
        both = f"{noise['stream']:.3g} in this stream, {noise['memory alone']:.3g} by recurring.memory alone"
        lines.append(f"  of units that come {habit}: {both}")
    return lines


def _ledger(ledger: dict[str, Any] | None) -> list[str]:
    if ledger is None:
        return ["", "Ledger: none, so this run is not added to others."]
    if ledger["refused"] and ledger["largest_epsilon"] is None:
        return ["", f"Ledger: the run would be refused: {ledger['refused']}"]
    left = f"epsilon {ledger['left']:.4g} of {ledger['limit']:g} is left for {ledger['dataset']}"
    fits = f"the largest epsilon that fits a run like this is {ledger['largest_epsilon']:g}"
    this = "would be refused" if ledger["refused"] else "fits"
    runs = f"{ledger['runs']:,} such {'run fits' if ledger['runs'] == 1 else 'runs fit'}"
    return ["", f"Ledger: {left}; {fits}; this run {this}; {runs}."]


def _accuracy(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    if found["epsilon"] is None:
        return [
            f"No epsilon up to 20 keeps the cost of noise within {found['asked']:g}: change bounds, clusters or rows."
        ]
    return [f"Epsilon {found['epsilon']:g} keeps the cost of noise within {found['asked']:g} of the cost without it."]


def _listed(title: str, entries: list[str]) -> list[str]:
    """A list with its title; empty for an empty list."""
    return ["", title, *(f"- {entry}" for entry in entries)] if entries else []


def _at_epsilons(found: Sequence[dict[str, Any]], unit: str) -> list[str]:
    """A table with a row per epsilon."""
    heads = ("epsilon", "cost per row", "over no noise", f"noise of a size, {unit}", "noise of a center", "ledger")
    rows = [heads, *(_cells(each) for each in found)]
    return [
        "",
        "The same job at other epsilons:",
        *(f"  {line}" for line in in_columns(rows)),
        *(f"  at {each['epsilon']:g}: {each['refused']}" for each in found if "refused" in each),
    ]


def in_columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Formats rows as lines with right-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in rows]


def _cells(found: dict[str, Any]) -> tuple[str, ...]:
    if "refused" in found:
        return (f"{found['epsilon']:g}", *("-",) * 4, "refused")
    share, noise = found["share_of_bounds"], found["center_noise"]
    center = "unknown"
    if noise is not None:
        center = f"{noise:.3g} feature units" if share is None else f"{share:.2%} of the bounds"
    return (
        f"{found['epsilon']:g}",
        f"{found['cost']:.5g}",
        "-" if found["excess"] is None else f"{found['excess']:+.1%}",
        "-" if found["size_noise"] is None else f"{found['size_noise']:.4g}",
        center,
        {None: "none", True: "fits", False: "refused"}[found["fits"]],
    )
