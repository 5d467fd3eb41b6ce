"""How a fit grows with rows and clients: wall and CPU time, peak memory, bytes between stages.

Every measurement is the whole command in a process of its own, imports included, on the local runner. Record level:
rows x 50 features. Client level: clients x 20 rows x 32 features, shuffled over the files, so that `fit` regroups
them first. Bytes between stages are what the runner counted for every collection that crosses from one stage to
the next, times its mean element size.

    python -m benchmarks.scale --rows 1000000 3000000 10000000 --clients 10000 100000 --out benchmarks/results/scale
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import measurement, mixture
from benchmarks.measurement import Figures

ROW_FEATURES, CLIENT_FEATURES, CLIENT_ROWS = 50, 32, 20
GROUP_ROWS = 62_500


def main() -> None:
    parser = measurement.script(__doc__, out="path without ending for a Markdown file and a plot")
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--clients", type=int, nargs="*", default=[10_000])
    parser.add_argument("--data", type=Path, help="folder for the generated lakes; default: a temporary one")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        data = arguments.data or Path(temporary)
        by_rows = {n: _spawn(record_lake(data, n)) for n in arguments.rows}
        by_clients = {n: _spawn(client_lake(data, n)) for n in arguments.clients}
    lines = report(by_rows, by_clients)
    measurement.show(lines, arguments.out and arguments.out.with_suffix(".md"))
    if arguments.out:
        plot(by_rows, by_clients, arguments.out.with_suffix(".svg"))


def record_lake(data: Path, n_rows: int) -> Path:
    """A lake of rows, written once."""
    lake = data / f"scale-rows-{n_rows}"
    if not (lake / "job.yaml").exists():
        mixture.write_large_lake(lake, n_rows, ROW_FEATURES, GROUP_ROWS)
        (lake / "job.yaml").write_text(json.dumps(mixture.config(lake, "record", 1.0)))
    return lake


def client_lake(data: Path, n_clients: int) -> Path:
    """A lake of clients whose rows lie all over it, written once."""
    lake = data / f"scale-clients-{n_clients}"
    if (lake / "job.yaml").exists():
        return lake
    drawn = mixture.draw(0, 0, CLIENT_FEATURES)
    rng = np.random.default_rng(1)
    (lake / "clients").mkdir(parents=True, exist_ok=True)
    owners = rng.permutation(np.repeat(np.arange(n_clients), CLIENT_ROWS))
    for index, start in enumerate(range(0, len(owners), GROUP_ROWS)):
        ids = owners[start : start + GROUP_ROWS]
        rows = mixture.sample(rng, drawn.means, len(ids)).astype(np.float32)
        pq.write_table(mixture.table(rows, ids), lake / "clients" / f"part-{index:04d}.parquet")
    pq.write_table(mixture.table(drawn.server), lake / "server.parquet")
    config = mixture.config(lake, "client", 1.0)
    config["clipping"]["client_rows"] = CLIENT_ROWS  # type: ignore[index]
    (lake / "job.yaml").write_text(json.dumps(config))
    return lake


def _spawn(lake: Path) -> Figures:
    figures: Figures = measurement.in_a_process("benchmarks.scale", "--measure", str(lake))
    print(lake.name, figures, flush=True)
    return figures


def measure(lake: Path) -> Figures:
    """Runs the command in this process and counts what the runner reports."""
    import apache_beam as beam

    moved: list[float] = []
    run = beam.Pipeline.run

    def counted(pipeline, *arguments, **keywords):  # type: ignore[no-untyped-def]
        result = run(pipeline, *arguments, **keywords)
        moved.append(bytes_between_stages(pipeline.to_runner_api(), result))
        return result

    beam.Pipeline.run = counted
    with tempfile.TemporaryDirectory(dir=lake) as folder:
        found = measurement.command("fit", "--config", str(lake / "job.yaml"), "--output", f"{folder}/out")
    return found | {"moved": sum(moved) / 2**20}


def bytes_between_stages(proto, result) -> float:  # type: ignore[no-untyped-def]
    """Encoded bytes of shuffled collections, partial sums and broadcasts, by the runner's own monitoring."""
    from apache_beam.metrics import monitoring_infos
    from apache_beam.portability import common_urns
    from apache_beam.portability.api import beam_runner_api_pb2

    crossing = set()
    for transform in proto.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.GROUP_BY_KEY.urn:
            crossing |= set(transform.inputs.values())
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            crossing |= {transform.inputs[tag] for tag in payload.side_inputs}
    sizes: dict[str, float] = {}
    for infos in result._monitoring_infos_by_stage.values():
        for info in infos:
            name = info.labels.get("PCOLLECTION", "")
            if "sampled_byte_size" in info.urn and (name in crossing or name.startswith("pcollection")):
                sizes[name] = monitoring_infos.extract_distribution(info)[1]
    return sum(sizes.values())


def report(by_rows: dict[int, Figures], by_clients: dict[int, Figures]) -> list[str]:
    """Markdown lines: both tables and the ratios of largest to smallest."""
    from benchmarks.machine import heading

    lines = heading("Scale: one fit, the whole command, local runner")
    for title, figures in (("rows", by_rows), ("clients", by_clients)):
        lines += [f"| {title} | wall s | CPU s | peak RSS MB | MB between stages |", "| --- " * 5 + "|"]
        for n, each in figures.items():
            lines.append(
                f"| {n:,} | {each['wall']:.1f} | {each['cpu']:.1f} | {each['rss']:.0f} | {each['moved']:.1f} |"
            )
        lines.append("")
    return lines


def plot(by_rows: dict[int, Figures], by_clients: dict[int, Figures], path: Path) -> None:
    """Wall time and peak memory against size."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for label, figures in (("rows (d = 50)", by_rows), ("clients x 20 rows (d = 32)", by_clients)):
        for axis, key, name in zip(axes, ("wall", "rss"), ("wall time, s", "peak RSS, MB"), strict=True):
            axis.plot(list(figures), [each[key] for each in figures.values()], "o-", label=label)
            axis.set(xscale="log", xlabel="rows or clients", ylabel=name)
    axes[0].set_yscale("log")
    axes[1].set_ylim(bottom=0)
    axes[0].legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
