"""Files of tests whose subject isn't Beam: their fits run with `--runner=InProcess` where the job can.

Both engines release the same bytes and write the same files and entries of the ledger
(`tests/pipeline/run/test_runner_in_process.py`), and one without Beam takes a fifth of the time.
"""

_NAMES = """
    test_crash_points test_csv_values test_ledger_runs test_verify
"""
FILES = frozenset(_NAMES.split())
