"""Mutants that no test can notice, since they compute or refuse the same, each with the reason.

Keys are names of mutants: file, class and function, and the change; not numbers of lines.
"""

_TRIANGLE = "sizes of symmetric releases are triangular, and 8 size + 2 has no other whole root: no square ends so"

_ONE_AT_A_TIME = "no chunk is empty, whatever its limit: with a limit of 0 it is one client, as with a limit of 1"
_ONE_CLIENT = "a chunk of more rows than CLIENT_BLOCK_ROWS is one client, whose first stretch is its last"
_LEFT_OUT = "any negative label leaves a row out"
_BLOCKS = "it only sets sizes of blocks, and the integers are the same for all: test_sizes_of_blocks_change_no_integer"
_NO_VERDICT = (
    "the product that it is a part of is far from 2**53 for every model, so no verdict changes; nothing is released"
)
_TINY = "a norm of less than two units is far below the sensitivity, so the factor is 1 either way"
_FEWER_DIGITS = (
    "far rows keep 25 of 26 bits where d is a power of 4, so the stated digits hold; nothing is released here"
)
_SMALLER = "the product that is checked next is larger for every model: its centers lie within 2**22 units"
_CONSTANTS = "a check of constants, which hold; it speaks when one of them is changed"
_NO_MULTIPLIER = "an event without a multiplier has one that is not positive, of zero or less"
_NEARLY_ONE = "the logarithm of either is below 0 by more than any Laplace epsilon, unless delta is within 2**-51 of 1"
_BY_NUMPY = "NumPy does the work then, with the same integers: tests/property/kernel/test_same_integers.py"
_ROUNDED_UP = "a root is rounded by 2**-53 of it, so the product of either is an upper bound"
_ORTHONORMAL = (
    "of an orthonormal basis the norm is PROJECTED_NORM either way; products of other columns are multiples of 2**-48, "
    "which are exact below 32"
)
_ANY_DISTANCE = "every distance is below each of them, so no row is beyond it"
_BOTH_EXACT = "both branches are exact to the stated digits for numbers from 0 to 1"
_PERIOD = "a tangent has the period pi, so the numbers are the same but for rounding"
_EITHER_FIRST = "both bounds are checked, whichever is the first"
_ONLY_ENTRY = "the first entry is the last: there is only one"
_IN_MEMORY = "it only places sums in memory, and any place from 0 to 7 leaves room for them"
_SQUARE = "a matrix that is not square is refused, whichever of its sides is compared with the other"
_NO_BITS = "no rows have a negative number of bits"
_CUT = "positions of n and beyond are cut off, and nothing else is drawn of their stream"
_CLIPPED = "the same number: the larger of the lower limit and the number, and no more than the upper limit"
_WHOLE_COUNTS = "no client's fractions have a norm above one, so bounds of one and more shorten none"
_LOWEST = "every code is above it, since codes lie between -2**53 and 2**53"
_ALL_CLUSTERS = "every row is of one of the clusters, so none of them is filtered"
_STACKED = "np.maximum(np.sqrt(lattice.squared_norms(sums)) * stretch[0]"
_STATISTICS = "transforms/core/statistics"
_NEAREST = "transforms/numerics/statistics/nearest.py"

EQUIVALENT: dict[str, str] = {
    f"{_NEAREST}:NearestCenters.of: lattice.check_product(2.0 ** ROW_BITS + _ROUNDING, "
    "2.0 ** ROW_BITS + _ROUNDING) => pass": _CONSTANTS,
    "schemas/privacy/charge.py:Charge.is_gaussian: event.get('noise_multiplier', 0.0) => "
    "event.get('noise_multiplier', -1.0)": _NO_MULTIPLIER,
    f"{_STATISTICS}/clients.py:outer_product: stretches[0] => stretches[-1]": _ONE_CLIENT,
    f"{_STATISTICS}/clients.py:mean_sums_and_counts.clip: {_STACKED}, 1.0) => {_STACKED}, 2.0)": (_TINY),
    f"{_STATISTICS}/differences.py:_difference_sums.differences: -1 => -2": _LEFT_OUT,
    f"{_NEAREST}:_norm_exponents: vectors.shape[1] - 1 => vectors.shape[1] - 0": _FEWER_DIGITS,
    f"{_NEAREST}:NearestCenters.of: lattice.check_product(2.0 * (2.0 ** ROW_BITS + _ROUNDING) + largest, "
    "largest) => pass": _SMALLER,
    "transforms/core/accounting.py:_single_epsilon: math.ulp(0.0) => math.ulp(1.0)": _NEARLY_ONE,
    "transforms/core/accounting.py:_single_epsilon: math.ulp(0.0) => math.ulp(-1.0)": _NEARLY_ONE,
    "transforms/core/discretization.py:_noise_groups: 8 * size + 1 => 8 * size + 2": _TRIANGLE,
    "transforms/core/noise.py:_diagonal: 8 * size + 1 => 8 * size + 2": _TRIANGLE,
}

_ALIKE = {
    ("client_chunks.py", _BLOCKS): {
        "1 << 17": ("1 >> 17", "2 << 17", "0 << 17", "1 << 18", "1 << 16", "1 << 34"),
        "1 << 21": ("1 >> 21", "2 << 21", "0 << 21", "1 << 22", "1 << 20", "1 << 42"),
    },
    ("nearest.py", _NO_VERDICT): {
        "ROW_BITS - 12": ("ROW_BITS - 13", "ROW_BITS - 11", "ROW_BITS - 24"),
        "2.0 ** (ROW_BITS - 12)": tuple(f"{each} (ROW_BITS - 12)" for each in ("2.0 *", "1.0 **", "3.0 **")),
    },
}
"""Constants of speed: reason by file, and what each may become."""
for (_file, _reason), _changes in _ALIKE.items():
    _path = _NEAREST if _NEAREST.endswith(f"/{_file}") else f"{_STATISTICS}/{_file}"
    for _before, _afters in _changes.items():
        _given = _before.partition(" = ")[0] + " = " if " = " in _before else ""
        EQUIVALENT |= {f"{_path}:: {_before} => {_given}{_after}": _reason for _after in _afters}

_PRODUCT = f"{_NEAREST}:NearestCenters.of: "
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

for _least, _reason in (("max(0", _ONE_AT_A_TIME), ("max(2", _BLOCKS), ("min(1", _ONE_AT_A_TIME)):
    for _where, _most in (("client_sums", "_MAX_CELLS"), ("client_histograms", "_MAX_BINS")):
        _name = f"{_STATISTICS}/client_chunks.py:{_where}: max(1, {_most} // size)"
        EQUIVALENT[f"{_name} => {_least}, {_most} // size)"] = _reason

_KERNEL = "transforms/numerics/kernel"
_LATTICE_ROWS = f"{_KERNEL}/lattice_rows.py:lattice_rows: "
for _change in (
    "points.shape[1] => points.shape[0]",
    "return (integers, np.flatnonzero(left)) => return None",
    *(f"points.ndim != 2 => points.ndim {each}" for each in ("== 2", "!= 1", "!= 3", "!= 4")),
):
    EQUIVALENT[_LATTICE_ROWS + _change] = _BY_NUMPY
for _change in ("return result => return None", *(f"values.ndim == 2 => values.ndim == {each}" for each in (3, 4))):
    EQUIVALENT[f"{_KERNEL}/lattice_rows.py:scaled: {_change}"] = _BY_NUMPY
_LOG_DELTA = "transforms/core/discretization.py:log_delta: near < 0.0"
EQUIVALENT[f"{_LOG_DELTA} => near < 1.0"] = EQUIVALENT[f"{_LOG_DELTA} => near <= 0.0"] = _BOTH_EXACT
_ANGLES = "transforms/numerics/clustered_fl/normal.py:normals: uniforms(stream, half) - 0.5 => uniforms(stream, half)"
EQUIVALENT[f"{_ANGLES} - -0.5"] = EQUIVALENT[f"{_ANGLES} + 0.5"] = _PERIOD
_CHECKED = ("(sums_bound, frame.lattice.clipping_norm)", "(counts_bound, 1.0)")
EQUIVALENT[
    f"{_STATISTICS}/rows.py:sums_and_counts: lattice.check_whole({', '.join(_CHECKED)}) => "
    f"lattice.check_whole({', '.join(reversed(_CHECKED))})"
] = _EITHER_FIRST
_CHECKED = ("(bound, neighborhoods.radius)", "(count_bound, 1.0)")
EQUIVALENT[
    f"{_STATISTICS}/differences.py:row_relative_sums: lattice.check_whole({', '.join(_CHECKED)}) => "
    f"lattice.check_whole({', '.join(reversed(_CHECKED))})"
] = _EITHER_FIRST
_CHECKED = ("ROW_NORM", "largest_norm(projection.matrix.T)")
EQUIVALENT[
    f"{_STATISTICS}/assignment.py:project: lattice.check_product({', '.join(_CHECKED)}) => "
    f"lattice.check_product({', '.join(reversed(_CHECKED))})"
] = "a product of two numbers is the same in either order"
EQUIVALENT[
    f"{_STATISTICS}/distances.py:_gains.gains: np.clip(units, -SENSITIVITY, SENSITIVITY) => "
    "np.clip(-SENSITIVITY, units, SENSITIVITY)"
] = _CLIPPED
_CHANGED = "points, self.box.low", "self.box.low, points"
EQUIVALENT[
    f"{_STATISTICS}/frame.py:Frame.quantize: "
    + " => ".join(f"np.clip({each}, self.box.high, dtype=np.float64)" for each in _CHANGED)
] = _CLIPPED
_FACTORS = "_scatter_factors(np.array([float(squared(scatter(1.0)))]))"
EQUIVALENT[f"{_STATISTICS}/clients.py:_large_scatter: {_FACTORS}[0] => {_FACTORS}[-1]"] = _ONLY_ENTRY
EQUIVALENT[f"{_STATISTICS}/row_pass.py:kernel: _used[0] => _used[-1]"] = _ONLY_ENTRY
for _after in ("3.0 ** 31", "4.0 ** 31", "2.0 ** 32", "2.0 ** 62"):
    EQUIVALENT[f"{_KERNEL}/row_pass.py:: 2.0 ** 31 => {_after}"] = _ANY_DISTANCE
for _after in ("3.0 ** 60", "4.0 ** 60", "2.0 ** 59", "2.0 ** 61", "2.0 ** 120"):
    EQUIVALENT[f"{_KERNEL}/row_pass.py:: 2.0 ** 60 => {_after}"] = _LOWEST
for _where, _reason in (
    (f"{_KERNEL}/row_pass.py:CompiledPass.of", _ROUNDED_UP),
    (f"{_STATISTICS}/assignment.py:largest_norm", _ROUNDED_UP),
    (f"{_STATISTICS}/assignment.py:Projection.norm", _ORTHONORMAL),
):
    for _change in ("-20 => -40", "-20 => -21", *(f"2.0 ** (-20) => {each} ** (-20)" for each in ("3.0", "4.0"))):
        EQUIVALENT[f"{_where}: {_change}"] = _reason
_PLACE = "numbers.ctypes.data // 8"
for _change in (
    f"-({_PLACE}) => {_PLACE}",
    f"-({_PLACE}) % 8 => -({_PLACE}) % 7",
    *(f"{_PLACE} => numbers.ctypes.data // {each}" for each in (7, 9, 16)),
):
    EQUIVALENT[f"{_STATISTICS}/row_pass.py:Tally.zeros: {_change}"] = _IN_MEMORY
for _after in ("-2", "-0"):
    EQUIVALENT[f"{_STATISTICS}/row_pass.py:add_outer: -1 => {_after}"] = _SQUARE
EQUIVALENT["transforms/rounds/kept_frame.py:QuantizedFrame: -1 => -2"] = _NO_BITS
EQUIVALENT["transforms/numerics/clustered_fl/normal.py:sampled_positions: reached < n => reached <= n"] = _CUT
for _after in ("<= 1.0", "< 2.0"):
    EQUIVALENT[f"{_STATISTICS}/differences.py:client_relative_sums.clip: count_bound < 1.0 => count_bound {_after}"] = (
        _WHOLE_COUNTS
    )
for _where, *_checked in (
    ("mean_sums_and_counts", "sums_bound", "counts_bound"),
    ("means_of_means", "means_bound", "presence_bound"),
    ("clipped_sums_and_counts", "sums_bound", "counts_bound"),
):
    _before, _after = (f"lattice.check_bounds({', '.join(each)})" for each in (_checked, reversed(_checked)))
    EQUIVALENT[f"{_STATISTICS}/clients.py:{_where}: {_before} => {_after}"] = _EITHER_FIRST

_FILTERED = "public_partitions_already_filtered="
EQUIVALENT[
    f"transforms/profile/pipeline_dp_noise.py:AddPipelineDPNoise._percentiles: {_FILTERED}True => {_FILTERED}False"
] = _ALL_CLUSTERS

_EQUAL = "rows and clients state the same number, as test_constants pins, so the largest of them is the least"
for _bound in ("OUTER", "SUM", "RELATIVE", "DIRECTION", "COUNT", "QUALITY"):
    _each = f"((each.{_bound}_SENSITIVITY for each in STATISTICS.values()))"
    EQUIVALENT[f"transforms/core/stated_sensitivity.py:: max{_each} => min{_each}"] = _EQUAL
