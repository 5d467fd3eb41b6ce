"""The lines that must be right for epsilon, by room, and the tests of each room.

The rule: a line counts if it holds code of the checker, of statistics, of noise, of accounts or of the records of
privacy (the files of `ROOMS`), or of a class or function that the checker's tables name and that may be given private
values outside of the trusted zone, or that states a sensitivity. Imports, hints and docstrings do not count.
"""

import ast
import dataclasses
import pathlib
from collections.abc import Iterator

from dapple_dp.transforms.core.allow_list import AUDITED, Level, Role
from dapple_dp.transforms.core.stated_sensitivity import STATED

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = "callables of the checker's tables"
_MASKED = "tests/pipeline/masked/test_masked_rounds.py"
_BEAM = "tests/pipeline/beam/test_beam_kmeans.py"
_PROFILE = "tests/pipeline/profile/test_profile.py"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Files that belong together.

    Attributes:
      sources: patterns of files; `TABLES` for whatever the checker's tables name elsewhere.
      tests: files, folders and `FILE::TEST` of those that are run: of pipelines quick ones, by which most lines run.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS: dict[str, Room] = {
    "statistics": Room(
        sources=(
            "transforms/core/statistics/*.py",
            "transforms/numerics/statistics/nearest.py",
            "transforms/core/round.py",
            "transforms/core/loop.py",
            "transforms/rounds/kept_frame.py",
            "transforms/numerics/kernel/*.py",
        ),
        tests=(
            "tests/unit/kernel",
            "tests/property/kernel",
            "tests/unit/statistics",
            "tests/unit/privacy/by_hand/test_constants.py",
            "tests/property/statistics",
            "tests/property/kmeans",
            "tests/unit/kmeans/test_feddp_rounds.py",
            "tests/attacks/test_rows_among_rows.py",
            "tests/unit/rounds/test_loop.py",
        ),
    ),
    "noise": Room(
        sources=(
            "transforms/core/keystream.py",
            "transforms/core/noise.py",
            "transforms/core/keys.py",
            "transforms/numerics/clustered_fl/normal.py",
            "transforms/numerics/clustered_fl/private_selection.py",
            "transforms/numerics/masked/noise_shares.py",
            "transforms/on_beam/noise_stage.py",
            "transforms/masked/noise_stages.py",
        ),
        tests=(
            "tests/unit/privacy/by_hand",
            "tests/unit/privacy/test_noise.py",
            "tests/unit/privacy/test_keys.py",
            "tests/unit/privacy/test_keystream.py",
            "tests/unit/privacy/test_noise_share_laws.py",
            "tests/unit/privacy/test_gaussian_mechanism.py",
            "tests/unit/clustered_fl/test_silo_accounting.py",
            "tests/property/privacy/test_keystream_labels.py",
            "tests/property/privacy/test_colluders.py",
            "tests/statistical/test_noise_law.py",
            "tests/statistical/test_split_noise.py",
            "tests/statistical/test_silo_noise.py",
            "tests/attacks/test_noise_keys.py",
            "tests/attacks/test_key_checks.py::test_a_noise_stage_under_a_kept_key_is_not_run",
            "tests/pipeline/privacy_flow/test_hostile_shares.py",
        ),
    ),
    "accounting": Room(
        sources=(
            "transforms/core/accounting.py",
            "transforms/core/discretization.py",
            "transforms/privacy/ledger_filter.py",
        ),
        tests=(
            "tests/unit/privacy/by_hand",
            "tests/unit/privacy/test_accounting.py",
            "tests/unit/privacy/test_discretization.py",
            "tests/unit/privacy/test_ledger_filter.py",
            "tests/unit/privacy/test_noise.py",
            "tests/property/privacy/test_accounting_bounds.py",
        ),
    ),
    "records": Room(
        sources=("schemas/core/*.py", "schemas/privacy/*.py"),
        tests=(
            "tests/unit/privacy/by_hand",
            "tests/unit/privacy/test_noise.py",
            "tests/unit/privacy/test_noise_share_laws.py",
            "tests/unit/privacy/test_ledger_filter.py",
            "tests/unit/privacy/test_accounting.py",
            "tests/unit/privacy/test_release_tables.py",
            "tests/unit/privacy/test_statement_words.py",
            "tests/unit/ledger",
            "tests/unit/test_sentences.py::test_no_guess_is_right_more_often_than_a_label_says",
            "tests/property/privacy",
            "tests/property/ledger",
            "tests/unit/privacy_flow",
            "tests/pipeline/privacy_flow/test_hostile_shares.py",
            "tests/unit/kmeans/test_feddp_rounds.py",
        ),
    ),
    "checker": Room(
        sources=(
            "transforms/core/allow_list.py",
            "transforms/core/audited_types.py",
            "transforms/core/known_objects.py",
            "transforms/privacy/extensions.py",
            "transforms/core/stated_sensitivity.py",
            "transforms/core/audit.py",
            "transforms/on_beam/checker.py",
            "transforms/on_beam/steps.py",
            "transforms/on_beam/workers.py",
            "transforms/on_beam/round.py",
        ),
        tests=(
            "tests/unit/privacy_flow",
            "tests/unit/privacy/by_hand/test_constants.py",
            "tests/pipeline/privacy_flow",
            f"{_BEAM}::test_a_graph_in_which_something_bypasses_the_noise_is_refused_when_it_is_built",
            f"{_BEAM}::test_no_rows_give_a_model_too",
            "tests/attacks/test_graph_objects.py",
            "tests/attacks/test_job_objects.py",
            "tests/attacks/test_extensions.py",
        ),
    ),
    "steps": Room(
        sources=(TABLES,),
        tests=(
            "tests/unit/rounds/test_state_arrays.py",
            "tests/unit/rounds/test_staged_state.py",
            "tests/unit/rounds/test_fan_in.py",
            "tests/unit/masked",
            "tests/unit/tables",
            "tests/unit/rounds/test_sums_by_hand.py",
            "tests/unit/kmeans/test_statistics_of_rounds.py",
            "tests/unit/clustered_fl/test_labeled_clients.py",
            "tests/unit/kmeans/test_feddp_rounds.py",
            "tests/unit/kmeans/test_central_tree.py",
            "tests/unit/kmeans/test_dp_medians.py",
            "tests/unit/kmeans/test_k_prototypes.py",
            "tests/unit/kmeans/test_spherical.py",
            "tests/unit/profile",
            "tests/unit/privacy_flow/test_stated_by_hand.py",
            "tests/unit/trusted_zone/test_cell_statistics.py",
            "tests/pipeline/trusted_zone/test_cells.py::test_cells_in_step_are_the_same_runs_as_alone[plain]",
            "tests/pipeline/rounds/test_exactness.py::test_a_run_equals_the_chain_of_its_rounds",
            f"{_MASKED}::test_the_unmasked_sum_is_the_plain_sum_of_those_present[record by shard]",
            f"{_MASKED}::test_the_unmasked_sum_is_the_plain_sum_of_those_present[client tuned]",
            f"{_MASKED}::test_pairwise_masks_leave_the_plain_sum_of_those_present[client tuned]",
            f"{_PROFILE}::test_a_profile_of_rows_is_near_the_truth",
            f"{_PROFILE}::test_a_profile_of_clients_is_near_the_truth",
            f"{_PROFILE}::test_a_value_of_one_person_is_not_released",
            f"{_PROFILE}::test_sums_of_rows_are_exact",
            f"{_PROFILE}::test_clients_are_counted_once",
            f"{_PROFILE}::test_a_large_client_moves_counts_by_no_more_than_the_bound",
            f"{_PROFILE}::test_a_sample_is_of_units_at_the_public_rate",
            f"{_PROFILE}::test_noise_of_small_budgets",
        ),
    ),
}


def listed() -> dict[str, dict[str, set[int]]]:
    """Numbers of the lines by file, by room."""
    found = {name: dict(_whole_files(room)) for name, room in ROOMS.items()}
    taken = {path for files in found.values() for path in files}
    named = {path: lines for path, lines in _of_tables().items() if path not in taken}
    for name, room in ROOMS.items():
        if TABLES in room.sources:
            found[name] |= named
    return found


def _whole_files(room: Room) -> Iterator[tuple[str, set[int]]]:
    for pattern in room.sources:
        for path in sorted(ROOT.glob(pattern)) if pattern != TABLES else ():
            if lines := code_lines(ast.parse(path.read_text())):
                yield path.relative_to(ROOT).as_posix(), lines


def _of_tables() -> dict[str, set[int]]:
    """Lines of named classes and functions."""
    private = [name for name, rule in AUDITED.items() if rule.role is not Role.TRUSTED and _sees_private(rule)]
    found: dict[str, set[int]] = {}
    for module, _, name in (each.partition(":") for each in [*private, *STATED]):
        path = ROOT / (module.removeprefix("dapple_dp.").replace(".", "/") + ".py")
        if path.exists():
            body = ast.parse(path.read_text()).body
            (node,) = (each for each in body if getattr(each, "name", None) == name)
            found.setdefault(path.relative_to(ROOT).as_posix(), set()).update(code_lines(node))
    return found


def _sees_private(rule: object) -> bool:
    levels = (getattr(rule, name) for name in ("takes", "sides", "gives"))
    return any(each is not None and each > Level.PUBLIC for each in levels)


def code_lines(tree: ast.AST) -> set[int]:
    """Lines on which code stands that runs and may be wrong."""
    if isinstance(tree, (ast.Import, ast.ImportFrom)) or is_text(tree):
        return set()
    own = {tree.lineno} if isinstance(tree, (ast.stmt, ast.expr)) else set()
    hints = {id(getattr(tree, name, None)) for name in ("annotation", "returns")}
    inside = (code_lines(each) for each in ast.iter_child_nodes(tree) if id(each) not in hints)
    return own.union(*inside)


def is_text(node: ast.AST) -> bool:
    """Returns whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
