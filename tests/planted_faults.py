"""Faults planted one at a time in files that decide privacy: is there a test that notices each of them?

    python -m tests.planted_faults                     # all faults; exit code 1 if any is not noticed
    python -m tests.planted_faults --only accounting noise   # those whose names start so
    python -m tests.planted_faults --out FILE          # the results as a page

Each fault replaces one piece of text in a temporary copy of the repository, in which the named tests then run. A fault
counts as noticed if one of them fails, and as not noticed if all pass. Tests that do not end count as noticed: a search
without an end is seen.
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from benchmarks import machine, measurement
from tests.seams import fits

ROOT = pathlib.Path(__file__).resolve().parents[1]
COPIED = ("schemas", "transforms", "pipelines", "dapple_dp", "tests", "examples", "deploy", "docs", "pyproject.toml")
MOST_SECONDS = 300
_ABOUT = "Faults in files that decide privacy, planted one at a time. On a busy machine seconds are upper bounds."
_COLUMNS = ("fault", "file", "first test that fails", "s")
MASKED = "tests/unit/masked"
STATISTICS = "tests/unit/statistics"
NOISE = "tests/unit/privacy/test_noise.py"
ACCOUNTING = "tests/unit/privacy/test_accounting.py"
PLAN = "tests/pipeline/plan/test_plan.py"


_ROWS = fits.TABLE.rows()
_FEW = fits.TABLE.few()


def seam(**levels: str) -> str:
    """The test of the first job with these levels among those fits of the table that run on every submission."""
    index = next(index for index in _FEW if levels.items() <= _ROWS[index].items())
    return f"tests/seams/test_fits.py::test_a_job_is_planned_run_verified_and_used[beam-{index}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One piece of text that is replaced by another.

    Attributes:
      name: what the fault is, in words.
      path: of the file.
      before: stands in it once.
      after: what stands there instead.
      tests: what is run, separated by spaces.
    """

    name: str
    path: str
    before: str
    after: str
    tests: str


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """Result of a fault."""

    fault: Fault
    noticed_by: str | None
    seconds: float


FAULTS = (
    # Found by a review, not noticed then.
    Fault(
        "training: noise from the stream of the batches",
        "transforms/numerics/clustered_fl/dp_sgd.py",
        'stream.substream(encode_label("noise"))',
        'stream.substream(encode_label("batches"))',
        "tests/unit/clustered_fl/test_dp_sgd.py",
    ),
    Fault(
        "relative sums: clients clipped at twice the sensitivity",
        "transforms/core/statistics/differences.py",
        "lattice.clip_l2(means, RELATIVE_UNITS,",
        "lattice.clip_l2(means, 2 * RELATIVE_UNITS,",
        f"{STATISTICS}/test_relative_sums.py",
    ),
    Fault(
        "directions: of rows at twice the sensitivity",
        "transforms/core/statistics/differences.py",
        "centers[labels], DIRECTION_UNITS,",
        "centers[labels], 2 * DIRECTION_UNITS,",
        "tests/property/kmeans/test_medians_sensitivity.py",
    ),
    Fault(
        "directions: clients clipped at twice the sensitivity",
        "transforms/core/statistics/differences.py",
        "clip_l2(means, DIRECTION_UNITS, rescale=common / bound)",
        "clip_l2(means, 2 * DIRECTION_UNITS, rescale=2.0 * common / bound)",
        "tests/property/kmeans/test_medians_sensitivity.py",
    ),
    Fault(
        "terms: a row has one term more",
        "transforms/core/statistics/term_cells.py",
        "n_features : n_features + limits.most]",
        "n_features : n_features + limits.most + 1]",
        "tests/property/kmeans/test_terms_sensitivity.py",
    ),
    Fault(
        "terms: cells of a row with several as fine as that of a row with one",
        "transforms/core/statistics/term_cells.py",
        "math.isqrt(TERM_UNITS**2 // self.per_row)",
        "TERM_UNITS",
        "tests/property/kmeans/test_prototypes_sensitivity.py",
    ),
    Fault(
        "terms: vectors of clients checked by twice the bound",
        "transforms/core/statistics/term_cells.py",
        "squared > TERM_UNITS**2",
        "squared > 4 * TERM_UNITS**2",
        "tests/property/kmeans/test_terms_sensitivity.py",
    ),
    Fault(
        "prototypes: cells state that a unit moves them by less",
        "transforms/core/stated_sensitivity.py",
        "_CELLS = Stated(bound=max(each.TERMS_SENSITIVITY for each in STATISTICS.values()), cells=True)",
        "_CELLS = Stated(bound=min(each.TERMS_SENSITIVITY for each in STATISTICS.values()) // 2, cells=True)",
        "tests/unit/privacy_flow/test_stated_by_hand.py",
    ),
    Fault(
        "prototypes: rows broadcast with the noisy histograms of the round before",
        "transforms/kmeans/k_prototypes/state.py",
        "histograms=None, releases=())",
        "releases=())",
        "tests/unit/kmeans/test_k_prototypes.py",
    ),
    Fault(
        "terms: lengths of rows by other rows",
        "schemas/tables/terms_column.py",
        "sums / np.maximum(lengths, 1.0)",
        "sums / max(lengths.max(initial=1.0), 1.0)",
        "tests/property/tables/test_encoded_rows.py",
    ),
    Fault(
        "terms: a term of a row counted as often as the row repeats it",
        "transforms/core/statistics/term_cells.py",
        "known[:, 1:] &= codes[:, 1:] != codes[:, :-1]",
        "known[:, 1:] &= True",
        "tests/property/kmeans/test_terms_sensitivity.py",
    ),
    Fault(
        "client means: rounded, not truncated",
        "transforms/core/statistics/lattice.py",
        "else np.trunc(values / factors[:, None] if divided",
        "else np.rint(values / factors[:, None] if divided",
        f"{STATISTICS}/test_statistics.py",
    ),
    Fault(
        "accounting: Laplace releases of one law counted once",
        "transforms/core/accounting.py",
        "DiscreteLaplaceDpEvent(pure_epsilon, 1), count)",
        "DiscreteLaplaceDpEvent(pure_epsilon, 1), 1)",
        ACCOUNTING,
    ),
    # Accounts.
    Fault(
        "accounting: precisions added without squares",
        "transforms/core/accounting.py",
        "math.fsum(release.noise_multiplier**-2 for",
        "math.fsum(release.noise_multiplier**-1 for",
        ACCOUNTING,
    ),
    Fault(
        "accounting: epsilon of the slack left out",
        "transforms/core/accounting.py",
        "    return compose_epsilon(rounds, delta - slack.delta, epsilon) + slack.epsilon",
        "    return compose_epsilon(rounds, delta - slack.delta, epsilon)",
        f"{ACCOUNTING} tests/property/privacy/test_accounting_bounds.py",
    ),
    Fault(
        "accounting: delta of the slack left out",
        "transforms/core/accounting.py",
        "    return compose_epsilon(rounds, delta - slack.delta, epsilon) + slack.epsilon",
        "    return compose_epsilon(rounds, delta, epsilon) + slack.epsilon",
        f"{ACCOUNTING} tests/property/privacy/test_accounting_bounds.py",
    ),
    Fault(
        "accounting: the search takes the level above the budget",
        "transforms/core/accounting.py",
        "for log_level, value in spent.items() if value <= epsilon)",
        "for log_level, value in spent.items() if value <= 1.01 * epsilon)",
        ACCOUNTING,
    ),
    Fault(
        "discretization: total variation halved",
        "transforms/core/discretization.py",
        "math.log1p(-1.0 / (24.0 * variance))",
        "math.log1p(-1.0 / (48.0 * variance))",
        "tests/unit/privacy/test_discretization.py",
    ),
    Fault(
        "discretization: off-diagonal noise as large as that of the diagonal",
        "transforms/core/discretization.py",
        "yield windows * (size - diagonal), variance / 2.0",
        "yield windows * (size - diagonal), variance",
        ACCOUNTING,
    ),
    Fault(
        "discretization: tail of the ratio without its root",
        "transforms/core/discretization.py",
        "noise.mean + math.sqrt(exponent * noise.square) + exponent * noise.largest",
        "noise.mean + exponent * noise.largest",
        "tests/unit/privacy/test_discretization.py",
    ),
    Fault(
        "plan: scales of Laplace noise rounded down",
        "schemas/core/plan.py",
        "return float(math.ceil(scale)) if",
        "return float(math.floor(scale)) if",
        f"{ACCOUNTING} {NOISE}",
    ),
    Fault(
        "ledger: runs composed without squares",
        "transforms/privacy/ledger_filter.py",
        'precision=_fsum((event["noise_multiplier"] ** -2, n) for',
        'precision=_fsum((event["noise_multiplier"] ** -1, n) for',
        "tests/unit/privacy/test_ledger_filter.py",
    ),
    Fault(
        "input digests: a file is hashed whatever was listed",
        "transforms/tables/file_seal.py",
        "if not FileSeal.of_text(seal).covers(found):",
        "if not seal:",
        "tests/attacks/test_input_digests.py",
    ),
    Fault(
        "input digests: a file may change while it is read",
        "transforms/tables/file_seal.py",
        "if not opened.fixed and _state(file, opened.source, name) != found[:2]:",
        "if not opened.fixed and not _state(file, opened.source, name):",
        "tests/attacks/test_input_digests.py",
    ),
    Fault(
        "stores: an object that took the place of another one is read on",
        "transforms/files/places/amazon.py",
        '        options |= {"if_match": self._tag}',
        "        pass",
        "tests/unit/files/test_amazon_store.py",
    ),
    Fault(
        "stores: an object without a tag may change while it is read",
        "transforms/files/places/amazon.py",
        "fixed=whole or bool(self._tag)",
        "fixed=True",
        "tests/unit/files/test_amazon_store.py",
    ),
    Fault(
        "stores: an object that was changed is read",
        "transforms/files/places/amazon.py",
        "f\"{int(meta['last_modified'].timestamp())}-{tag}\"",
        '""',
        "tests/unit/files/test_amazon_store.py",
    ),
    Fault(
        "input digests: the manifest may change after the listing",
        "pipelines/kmeans/plan/fingerprint.py",
        "if PreparedManifest.from_json(content, path) != listed:",
        "if not PreparedManifest.from_json(content, path):",
        "tests/attacks/test_input_digests.py",
    ),
    Fault(
        "input digests: a manifest is believed by the rounds, too",
        "transforms/tables/file_seal.py",
        "if expected and _content(source, name).hex() != expected:",
        "if expected and not _content(source, name):",
        "tests/attacks/test_input_digests.py",
    ),
    Fault(
        "input digests: links may move between partitions",
        "pipelines/kmeans/plan/fingerprint.py",
        "if folders(each.path) == folders(each.file) or values(each.path) == values(each.file):",
        "if True:",
        "tests/attacks/test_input_digests.py",
    ),
    Fault(
        "ledger: charges without a scope touch no partition",
        "transforms/privacy/ledger_filter.py",
        "return None in (scope, charge.scope) or",
        "return scope is None or",
        "tests/unit/privacy/test_ledger_filter.py",
    ),
    Fault(
        "silos: selections counted once",
        "transforms/clustered_fl/silo_accounting.py",
        "for _ in range(event.count):",
        "for _ in range(1):",
        "tests/unit/clustered_fl/test_silo_accounting.py",
    ),
    Fault(
        "silos: a replaced row moves counts one way only",
        "transforms/clustered_fl/silo_accounting.py",
        "_replacing_response if replace else _monotone_response",
        "_monotone_response if replace else _monotone_response",
        "tests/unit/clustered_fl/test_silo_accounting.py",
    ),
    # Noise.
    Fault(
        "noise: off-diagonal stddev halved",
        "transforms/core/noise.py",
        "math.nextafter(noise_scale * math.sqrt(0.5), math.inf)",
        "math.nextafter(noise_scale * 0.5, math.inf)",
        f"{NOISE} tests/statistical/test_noise_law.py",
    ),
    Fault(
        "noise: not bound to the sum",
        "transforms/core/noise.py",
        "stream = KeyStream(key, _release_label(path, start, plan, digest))",
        'stream = KeyStream(key, _release_label(path, start, plan, b""))',
        NOISE,
    ),
    Fault(
        "noise: two releases of a round share it",
        "transforms/core/noise.py",
        "stream = KeyStream(key, _release_label(path, start, plan, digest))",
        'stream = KeyStream(key, encode_label("release", digest))',
        NOISE,
    ),
    Fault(
        "noise: scales below the lattice are drawn",
        "transforms/core/noise.py",
        "if not scale >= MIN_RELEASE_SCALE:",
        "if not scale >= 1.0:",
        f"{NOISE} {ACCOUNTING}",
    ),
    Fault(
        "noise: two noises stated as one of twice the stddev",
        "transforms/masked/noise_stages.py",
        "release.plan.noise_multiplier * math.sqrt(2.0)",
        "release.plan.noise_multiplier * 2.0",
        NOISE,
    ),
    Fault(
        "loop: a key draws in two runs",
        "transforms/core/loop.py",
        "if not self._unused.acquire(blocking=False):",
        "if self._unused is None:",
        "tests/unit/rounds/test_loop.py",
    ),
    Fault(
        "loop: a failure keeps the exact sum",
        "transforms/core/loop.py",
        "traceback.clear_frames(error.__traceback__)",
        "pass",
        "tests/unit/rounds/test_loop.py",
    ),
    Fault(
        "loop: the last block is counted twice",
        "transforms/core/loop.py",
        "    return total\n",
        "    return total + measure(round_, block, state)\n",
        "tests/unit/rounds/test_loop.py",
    ),
    Fault(
        "training: stddev without the share of rounding",
        "transforms/numerics/clustered_fl/dp_sgd.py",
        "sgd.clipping_norm * (1.0 + model.rounding_share)",
        "sgd.clipping_norm",
        "tests/unit/clustered_fl/test_dp_sgd.py",
    ),
    Fault(
        "selection: losses that are not cut off",
        "transforms/numerics/clustered_fl/exact_layer.py",
        "np.where(left > 0.0, np.minimum(np.trunc(left), 2.0**GAIN_BITS), 0.0)",
        "np.trunc(left)",
        "tests/property/clustered_fl/test_selections.py",
    ),
    Fault(
        "selection: Gumbel noise of half the scale",
        "transforms/numerics/clustered_fl/private_selection.py",
        "counts + 2.0 * most / epsilon * gumbels",
        "counts + 1.0 * most / epsilon * gumbels",
        "tests/statistical/test_silo_noise.py tests/unit/clustered_fl",
    ),
    # Bounds.
    Fault(
        "lattice: rows rounded, not truncated",
        "transforms/core/statistics/lattice.py",
        "        np.trunc(rows, out=rows)",
        "        np.rint(rows, out=rows)",
        f"{STATISTICS}/test_lattice.py",
    ),
    Fault(
        "lattice: rows a little outside are left there",
        "transforms/core/statistics/lattice.py",
        "outside = ~(squared <= 4.0**bits)",
        "outside = ~(squared <= 4.0**bits + 2.0**bits)",
        f"{STATISTICS}/test_lattice.py",
    ),
    Fault(
        "lattice: twice the L1 norm",
        "transforms/core/statistics/lattice.py",
        "lambda clipped: np.abs(clipped).sum(axis=1) <= limit)",
        "lambda clipped: np.abs(clipped).sum(axis=1) <= 2 * limit)",
        f"{STATISTICS}/test_lattice.py",
    ),
    Fault(
        "sums by group: a row that is left out counts",
        "transforms/core/statistics/client_chunks.py",
        "kept = np.flatnonzero(groups >= 0)",
        "kept = np.flatnonzero(groups >= -1)",
        f"{STATISTICS}/test_integers_by_hand.py",
    ),
    Fault(
        "kernel: shares of clients rounded up",
        "transforms/numerics/kernel/lattice.c",
        "trunc((double)integers[f] * by)",
        "ceil((double)integers[f] * by)",
        "tests/property/kernel",
    ),
    Fault(
        "kernel: rows longer than their bound",
        "transforms/numerics/kernel/rows.c",
        "bad |= !(sum <= norm * norm);",
        "bad |= !(sum <= 2 * norm * norm);",
        "tests/property/kernel",
    ),
    Fault(
        "client counts: rows, not clients",
        "transforms/core/statistics/clients.py",
        "np.array([block.n_clients * lattice.SUM_UNITS]",
        "np.array([len(block.points) * lattice.SUM_UNITS]",
        f"{STATISTICS}/test_statistics.py",
    ),
    Fault(
        "quality: costs beyond the cap",
        "transforms/core/statistics/distances.py",
        "np.minimum(units, SENSITIVITY)",
        "np.minimum(units, 2 * SENSITIVITY)",
        f"{STATISTICS}/test_center_quality.py",
    ),
    Fault(
        "quality: gains beyond the cap on one side",
        "transforms/core/statistics/distances.py",
        "np.clip(units, -SENSITIVITY, SENSITIVITY)",
        "np.minimum(units, SENSITIVITY)",
        f"{STATISTICS}/test_center_quality.py",
    ),
    Fault(
        "specs: sampled rows move sums by one row only",
        "transforms/kmeans/lloyd/specs.py",
        "        return 2 * spec.sensitivity\n",
        "        return spec.sensitivity\n",
        "tests/unit/kmeans/test_feddp_rounds.py tests/property/kmeans/test_sensitivity.py",
    ),
    Fault(
        "masks: the aggregator sees statistics",
        "transforms/numerics/masked/shared_masks.py",
        "(statistics.view(np.uint64) + masks).view(np.int64)",
        "(statistics.view(np.uint64) + 0 * masks).view(np.int64)",
        MASKED,
    ),
    # Rounds and the checker.
    Fault(
        "rounds: any shape of a statistic is added up",
        "transforms/core/round.py",
        "if statistic.shape != (round_.plan.size,) or statistic.dtype != np.int64:",
        "if statistic.dtype != np.int64:",
        "tests/attacks/test_job_objects.py",
    ),
    Fault(
        "epoch: a client counts once more than planned",
        "transforms/numerics/tables/participation.py",
        "minlength=len(known)) >= rule.max_windows]",
        "minlength=len(known)) > rule.max_windows]",
        "tests/property/kmeans/test_participation.py",
    ),
    Fault(
        "epoch: a client counts a window too early",
        "transforms/numerics/tables/participation.py",
        "self.windows > window - rule.min_separation]",
        "self.windows > window - rule.min_separation + 1]",
        "tests/property/kmeans/test_participation.py",
    ),
    Fault(
        "epoch: weights that meet are not added up",
        "transforms/core/stated_sensitivity.py",
        "column[first : first + len(weights)] += np.array(weights)",
        "column[first : first + len(weights)] = np.array(weights)",
        "tests/property/kmeans/test_participation.py",
    ),
    Fault(
        "epoch: rows are read without the client list",
        "transforms/tables/shard_rows.py",
        "block = counted_block(block, shard.path, contract.participation)",
        "pass",
        "tests/pipeline/kmeans/test_client_epoch.py",
    ),
    Fault(
        "epoch: a window begins with any client list whose facts fit",
        "pipelines/ledger/private_state.py",
        "if _named(runs, state, index) != digest:",
        "if not _named(runs, state, index):",
        "tests/attacks/test_private_state.py tests/pipeline/kmeans/test_client_epoch.py",
    ),
    Fault(
        "epoch: rows are read by the client list of another run",
        "transforms/tables/counted_clients.py",
        "if hashlib.sha256(content).hexdigest() != digest:",
        "if not digest:",
        "tests/pipeline/kmeans/test_client_epoch.py",
    ),
    Fault(
        "checker: clients of windows need no client list",
        "transforms/core/stated_sensitivity.py",
        "    if not parts or len(parts) < len(contracts):\n        return None\n",
        "    if not parts:\n        return Moves(weights, len(weights))\n",
        "tests/pipeline/kmeans/test_client_epoch.py",
    ),
    Fault(
        "checker: sampled rows need no larger sensitivity",
        "transforms/core/stated_sensitivity.py",
        "return 2 * self.bound if self.vectors else",
        "return self.bound if self.vectors else",
        "tests/unit/privacy_flow",
    ),
    Fault(
        "checker: subclasses are known",
        "transforms/core/known_objects.py",
        "    name = name_of(kind)\n    return name if",
        "    name = name_of(kind.__mro__[1] if len(kind.__mro__) > 2 else kind)\n    return name if",
        "tests/attacks/test_graph_objects.py",
    ),
    Fault(
        "checker: attributes that no type declares are left alone",
        "transforms/core/known_objects.py",
        "        if type(attribute) is not str or attribute not in declared:",
        "        if type(attribute) is not str:",
        "tests/attacks/test_graph_objects.py",
    ),
    Fault(
        "checker: statistics may be added up twice",
        "transforms/on_beam/checker.py",
        "        if given.copies != 1:",
        "        if given.copies > 2:",
        "tests/pipeline/privacy_flow/test_hostile_pipelines.py",
    ),
    Fault(
        "checker: the sum of a branch counts as that of all",
        "transforms/on_beam/steps.py",
        "private and all(trace.gathered for trace in private):",
        "private:",
        "tests/pipeline/privacy_flow/test_hostile_pipelines.py",
    ),
    Fault(
        "checker: plans of a sweep are believed",
        "transforms/core/audit.py",
        "    for plan in promise.plans:\n        _spent(plan, plan.rounds)\n",
        "",
        "tests/attacks/test_job_objects.py",
    ),
    Fault(
        "accounting: an epsilon that is known is believed",
        "transforms/core/accounting.py",
        " * (1.0 + _RELATIVE_MARGIN) + _ABSOLUTE_MARGIN <= allowed",
        " >= 0.0",
        "tests/unit/privacy/test_accounting.py",
    ),
    Fault(
        "profile: trees counted as one level",
        "transforms/profile/pipeline_dp_noise.py",
        "math.sqrt(TREE_LEVELS) if event.law is ProfileLaw.GAUSSIAN else TREE_LEVELS",
        "1.0 if event.law is ProfileLaw.GAUSSIAN else 1.0",
        "tests/pipeline/privacy_flow/test_hostile_plans.py tests/property/profile",
    ),
    # Windows that arrive, and noise that senders split.
    Fault(
        "topic: a new partition is read from its end",
        "pipelines/tables/arrivals/records.py",
        "first=starts.get(index, 0),",
        "first=starts.get(index, end),",
        "tests/unit/arrivals/test_cuts.py",
    ),
    Fault(
        "topic: a recreated one is read",
        "pipelines/tables/arrivals/records.py",
        " or (before is not None and before.topic_id != state.topic_id)",
        "",
        "tests/unit/arrivals/test_cuts.py",
    ),
    Fault(
        "topic: windows need not join",
        "pipelines/tables/arrivals/records.py",
        "if before is not None and any(each.first != before.ends.get(each.partition, 0) for each in result.ranges):",
        "if False:",
        "tests/unit/arrivals/test_cuts.py",
    ),
    Fault(
        "topic: a log that was cut short ends a window before its start",
        "pipelines/tables/arrivals/records.py",
        "end=max(end, starts.get(index, 0))",
        "end=end",
        "tests/unit/arrivals/test_cuts.py",
    ),
    Fault(
        "power cut: released files are not flushed before they are charged for",
        "transforms/files/local_store.py",
        "        new_file.flush(path)\n",
        "",
        "tests/unit/files/test_durable_files.py",
    ),
    Fault(
        "power cut: another release is published for one charge",
        "pipelines/kmeans/account.py",
        'status.release != content["releases"]',
        "False",
        "tests/pipeline/ledger/test_power_cuts.py",
    ),
    Fault(
        "power cut: keys come back in the output",
        "pipelines/run/folder.py",
        "            new_file.flush(self.staging)\n",
        "",
        "tests/unit/run/test_run_folder.py",
    ),
    Fault(
        "topic: producers say when messages came",
        "pipelines/tables/arrivals/broker.py",
        'said["message.timestamp.type"] == "LogAppendTime"',
        "True",
        "tests/unit/arrivals/test_cuts.py",
    ),
    Fault(
        "topic: a first window may have lost messages",
        "pipelines/tables/arrivals/broker.py",
        "0 < low >= start",
        "0 > low >= start",
        "tests/unit/arrivals/test_cuts.py",
    ),
    Fault(
        "topic: dropped messages are not missed",
        "pipelines/tables/arrivals/landing.py",
        "not low <= each.first <= each.end <= high",
        "not each.first <= each.end <= high",
        "tests/unit/arrivals/test_cuts.py",
    ),
    Fault(
        "topic: two jobs share a folder of copies",
        "transforms/files/claims.py",
        "        if not locked(descriptor):",
        "        if False:",
        "tests/unit/arrivals/test_cuts.py",
    ),
    Fault(
        "topic: a property runs a command",
        "schemas/arrivals/topic.py",
        "name.startswith(_PROGRAMS) or ",
        "",
        "tests/unit/arrivals/test_messages.py",
    ),
    Fault(
        "windows: reports of other parameters are decoded",
        "pipelines/reports/windows.py",
        "if window.parameters_digest not in (None, digest):",
        "if False:",
        "tests/pipeline/reports/test_report_windows.py -k all_windows_of",
    ),
    Fault(
        "windows: a copied one stands for another",
        "pipelines/jobs/windows.py",
        '.run_id.endswith(f"-{date}")',
        '.run_id.endswith("")',
        "tests/pipeline/reports/test_report_windows.py -k copied",
    ),
    Fault(
        "shares: who colludes has noise that counts",
        "schemas/privacy/noise_shares.py",
        "counted = self.fewest(n_listed) - self._n_corrupt(n_listed)",
        "counted = self.fewest(n_listed)",
        "tests/unit/privacy/test_noise_share_laws.py",
    ),
    Fault(
        "shares: one sender more is counted on",
        "schemas/privacy/noise_shares.py",
        "return math.ceil(_exact(share) * n)",
        "return math.floor(_exact(share) * n)",
        "tests/unit/privacy/test_noise_share_laws.py",
    ),
    Fault(
        "shares: a sum of one sender too few passes",
        "schemas/privacy/noise_shares.py",
        "if n_present < fewest:",
        "if n_present < fewest - 1:",
        "tests/unit/privacy/test_noise_share_laws.py",
    ),
    Fault(
        "shares: stddevs are split, not variances",
        "transforms/numerics/masked/noise_shares.py",
        "plan.noise_multiplier / math.sqrt(counted)",
        "plan.noise_multiplier / counted",
        "tests/statistical/test_split_noise.py",
    ),
    Fault(
        "shares: another statistic has the same share",
        "transforms/numerics/masked/noise_shares.py",
        "round_plan.path, *law, digest)",
        "round_plan.path, *law)",
        "tests/unit/privacy/test_noise_share_laws.py tests/statistical/test_split_noise.py",
    ),
    # Between two features; noticed by jobs that hold pairs of settings.
    Fault(
        "seams: a plan counts one of the noises of both roles",
        "schemas/masked/config.py",
        "            return 2.0\n",
        "            return 1.0\n",
        seam(noise_by="both"),
    ),
    Fault(
        "seams: the label shows the epsilon that was asked for",
        "pipelines/kmeans/report/report_page.py",
        'epsilon=f"{plan.epsilon:.4g}",',
        'epsilon=f"{asked.epsilon:.4g}",',
        seam(algorithm="dp_lloyd"),
    ),
    Fault(
        "seams: a cost beside one stddev of its noise",
        "pipelines/kmeans/report/clusters.py",
        "± {2 * cost.stddev:.2g} (two",
        "± {cost.stddev:.2g} (two",
        seam(quality="share", command="fit"),
    ),
    Fault(
        "seams: a plan takes simulated noise for certain",
        "pipelines/plan/expected.py",
        "fixed = (units == units[0]).all(axis=0)",
        "fixed = (units[:1] == units[0]).all(axis=0)",
        f"{PLAN}::test_noise_that_follows_from_earlier_releases_is_said_to_be_simulated",
    ),
)


def run(fault: Fault, copy: pathlib.Path) -> Result:
    """Plants a fault in a copy, runs its tests, and takes it out again.

    Raises:
      ValueError: if the text before does not stand in the file once.
    """
    path = copy / fault.path
    text = path.read_text()
    if text.count(fault.before) != 1:
        raise ValueError(f"{fault.path} must hold the text of '{fault.name}' once, got {text.count(fault.before)}.")
    path.write_text(text.replace(fault.before, fault.after))
    start = time.perf_counter()
    try:
        return Result(fault, _noticed_by(fault.tests.split(), copy), time.perf_counter() - start)
    finally:
        path.write_text(text)


def _noticed_by(tests: list[str], copy: pathlib.Path) -> str | None:
    """The first test that fails in a copy; None if all pass."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(copy)}
    try:
        done = subprocess.run(
            words, cwd=copy, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "no end"
    failed = [line.split(" ")[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the tests must run, got exit code {done.returncode}: {done.stdout[-2000:]}")
    return None if done.returncode == 0 else (failed or ["a test"])[0]


def copied(folder: pathlib.Path) -> pathlib.Path:
    """The repository without its history and results."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def main() -> int:
    """Plants, runs and reports."""
    parser = measurement.script(__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="how the names of faults start")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="dapple-faults-") as folder:
        copy = copied(pathlib.Path(folder))
        for fault in (each for each in FAULTS if each.name.startswith(tuple(options.only))):
            results.append(run(fault, copy))
            sys.stderr.write(f"{fault.name}: {results[-1].noticed_by or 'NOT NOTICED'} {results[-1].seconds:.0f} s\n")
    rows = [
        [
            each.fault.name,
            f"`{each.fault.path}`",
            f"`{each.noticed_by}`" if each.noticed_by else "not noticed",
            f"{each.seconds:.0f}",
        ]
        for each in results
    ]
    noticed = sum(each.noticed_by is not None for each in results)
    page = [*machine.heading("Planted faults"), _ABOUT, "", *measurement.table(_COLUMNS, rows)]
    measurement.show([*page, "", f"{len(rows)} faults; {noticed} are noticed by a test."], options.out)
    return int(any(each.noticed_by is None for each in results))


if __name__ == "__main__":
    sys.exit(main())
