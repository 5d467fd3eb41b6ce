"""Mutants that no test can notice, since they compute or refuse the same, each with the reason.

Keys are names of mutants: file, class and function, and the change; not numbers of lines.
"""

_TRIANGLE = "sizes of symmetric releases are triangular, and 8 size + 2 has no other whole root: no square ends so"

_ONE_AT_A_TIME = "no chunk is empty, whatever its limit: with a limit of 0 it is one client, as with a limit of 1"
_ONE_CLIENT = "a chunk of more rows than CLIENT_BLOCK_ROWS is one client, whose first stretch is its last"
_LEFT_OUT = "any negative label leaves a row out"
_BLOCKS = "it only sets sizes of blocks, and the integers are the same for all: test_sizes_of_blocks_change_no_integer"
_WAYS = "it only chooses between two ways to the same integers: test_sizes_of_blocks_change_no_integer"
_NO_VERDICT = (
    "the product that it is a part of is far from 2**53 for every model, so no verdict changes; nothing is released"
)
_TINY = "a norm of less than two units is far below the sensitivity, so the factor is 1 either way"
_FEWER_DIGITS = (
    "far rows keep 25 of 26 bits where d is a power of 4, so the stated digits hold; nothing is released here"
)
_SMALLER = "the product that is checked next is larger for every model: its centers lie within 2**22 units"
_CONSTANTS = "a check of constants, which hold; it speaks when one of them is changed"
_SHORTCUT = "successive numbers are as far apart as they are many, so the other half of the condition says it alone"
_COPIED = "clients that are next to each other are copied like any others, in place of a view of the same rows"
_NO_MULTIPLIER = "an event without a multiplier has one that is not positive, of zero or less"
_PROTOCOL = "a signature of a Protocol, which is never called"
_STACKED = "np.maximum(np.sqrt(lattice.squared_norms(sums)) * stretch[0]"
_STATISTICS = "transforms/numerics/statistics"

EQUIVALENT: dict[str, str] = {
    f"{_STATISTICS}/nearest.py:NearestCenters.of: lattice.check_product(2.0 ** ROW_BITS + _ROUNDING, "
    "2.0 ** ROW_BITS + _ROUNDING) => pass": _CONSTANTS,
    "schemas/privacy/charge.py:Charge.is_gaussian: each.get('noise_multiplier', 0.0) => "
    "each.get('noise_multiplier', -1.0)": _NO_MULTIPLIER,
    f"{_STATISTICS}/clients.py:outer_product: stretches[0] => stretches[-1]": _ONE_CLIENT,
    f"{_STATISTICS}/clients.py:mean_sums_and_counts.clip: {_STACKED}, 1.0) => {_STACKED}, 2.0)": (_TINY),
    f"{_STATISTICS}/relative_sums.py:client_relative_sums.differences: -1 => -2": _LEFT_OUT,
    f"{_STATISTICS}/assignment.py:Assigner.labels: -1 => -2": _LEFT_OUT,
    f"{_STATISTICS}/nearest.py:_norm_exponents: vectors.shape[1] - 1 => vectors.shape[1] - 0": _FEWER_DIGITS,
    f"{_STATISTICS}/nearest.py:NearestCenters.of: lattice.check_product(2.0 * (2.0 ** ROW_BITS + _ROUNDING) + largest, "
    "largest) => pass": _SMALLER,
    "transforms/privacy/discretization.py:_noise_groups: 8 * size + 1 => 8 * size + 2": _TRIANGLE,
    "transforms/numerics/privacy/noise.py:_diagonal: 8 * size + 1 => 8 * size + 2": _TRIANGLE,
}

_ALIKE = {
    ("assignment.py", _WAYS): {"_FEW_CENTERS = 32": ("33", "31", "64")},
    ("assignment.py", _BLOCKS): {"_ROWS_AT_ONCE = 256": ("257", "255", "512")},
    ("clients.py", _BLOCKS): {"1 << 21": ("1 >> 21", "2 << 21", "0 << 21", "1 << 22", "1 << 20", "1 << 42")},
    ("lattice.py", _WAYS): {
        "(12, 16)": ("(13, 16)", "(11, 16)", "(24, 16)", "(12, 17)", "(12, 15)", "(12, 32)"),
    },
    ("relative_sums.py", _BLOCKS): {
        "1 << 15": ("1 >> 15", "2 << 15", "0 << 15", "1 << 16", "1 << 14", "1 << 30"),
        "1 << 13": ("2 << 13", "1 << 14", "1 << 12", "1 << 26"),
    },
    ("rows.py", _WAYS): {"_MATRIX_CLUSTERS = 16": ("17", "15", "32")},
    ("nearest.py", _NO_VERDICT): {
        "ROW_BITS - 12": ("ROW_BITS - 13", "ROW_BITS - 11", "ROW_BITS - 24"),
        "2.0 ** (ROW_BITS - 12)": tuple(f"{each} (ROW_BITS - 12)" for each in ("2.0 *", "1.0 **", "3.0 **")),
    },
}
"""Constants of speed: reason by file, and what each may become."""
for (_file, _reason), _changes in _ALIKE.items():
    for _before, _afters in _changes.items():
        _given = _before.partition(" = ")[0] + " = " if " = " in _before else ""
        EQUIVALENT |= {f"{_STATISTICS}/{_file}:: {_before} => {_given}{_after}": _reason for _after in _afters}

_PRODUCT = f"{_STATISTICS}/nearest.py:NearestCenters.of: "
_LIMIT = "2.0 ** ROW_BITS + _ROUNDING"
for _change in (
    *(f"2.0 * ({_LIMIT}) => {each} ({_LIMIT})" for each in ("2.0 /", "1.0 *", "3.0 *", "4.0 *")),
    f"2.0 * ({_LIMIT}) + largest => 2.0 * ({_LIMIT}) - largest",
    *(f"{_LIMIT} => 2.0 ** ROW_BITS - _ROUNDING{place}" for place in ("", " (place 2)", " (place 3)")),
    *(
        f"2.0 ** ROW_BITS => {each} ROW_BITS{place}"
        for each in ("1.0 **", "2.0 *")
        for place in ("", " (place 2)", " (place 3)")
    ),
):
    EQUIVALENT[_PRODUCT + _change] = _NO_VERDICT

for _where, _cells in (
    ("clients.py:histogram", "_MAX_CELLS // assigner.size"),
    ("clients.py:_clipped_totals", "_MAX_CELLS // len(sums)"),
    ("directions.py:client_direction_sums", "(1 << 21) // len(sums)"),
    ("relative_sums.py:client_relative_sums", "(1 << 21) // len(sums)"),
):
    for _least, _reason in (("max(0", _ONE_AT_A_TIME), ("max(2", _BLOCKS), ("min(1", _ONE_AT_A_TIME)):
        EQUIVALENT[f"{_STATISTICS}/{_where}: max(1, {_cells}) => {_least}, {_cells})"] = _reason
    if _cells.startswith("("):
        for _after in ("1 >> 21", "2 << 21", "0 << 21", "1 << 22", "1 << 20", "1 << 42"):
            EQUIVALENT[f"{_STATISTICS}/{_where}: 1 << 21 => {_after}"] = _BLOCKS

_TAKE = f"{_STATISTICS}/client_chunks.py:_take: "
for _change, _reason in (
    ("last - first == len(clients) - 1 => last - first != len(clients) - 1", _COPIED),
    ("last - first => last + first", _SHORTCUT),
    *((f"len(clients) - 1 => len(clients) {each}", _COPIED) for each in ("+ 1", "- 2", "- 0")),
    *((f"np.diff(clients) == 1 => np.diff(clients) == {each}", _COPIED) for each in ("0", "2")),
):
    EQUIVALENT[_TAKE + _change] = _reason

_EQUAL = "rows and clients state the same number, as test_constants pins, so the largest of them is the least"
for _bound in ("OUTER", "SUM", "RELATIVE", "DIRECTION", "COUNT", "QUALITY"):
    _each = f"((each.{_bound}_SENSITIVITY for each in STATISTICS.values()))"
    for _place in ("", " (place 2)")[: 2 if _bound == "QUALITY" else 1]:
        _name = f"transforms/privacy_flow/stated_sensitivity.py:: max{_each} => min{_each}{_place}"
        EQUIVALENT[_name] = _EQUAL

_SIGNATURE = "self, block: ClientBlock, frame: Frame, neighborhoods: Neighborhoods, bound: int, count_bound: float="
for _default in ("2.0", "0.0"):
    _name = f"{_STATISTICS}/by_unit.py:UnitStatistics: {_SIGNATURE}1.0 => {_SIGNATURE}{_default}"
    EQUIVALENT[_name] = _PROTOCOL
