"""Files of tests whose subject isn't Beam: their fits run with `--runner=InProcess` where the job can.

Both engines release the same bytes and write the same files and entries of the ledger
(`tests/pipeline/run/test_runner_in_process.py` for a job of each algorithm, `tests/pipeline/rounds/test_engines.py` for
rounds), and one without Beam takes a fifth of the time. A fit in these files that is about Beam names a runner or
another flag of Beam, and keeps it.
"""

_NAMES = """
    test_crash_points test_csv_dialects test_csv_jobs test_csv_seams test_csv_values test_dp_lloyd
    test_edge_cases test_elbow test_encode test_epoch test_first_job test_ledger_runs test_medians_fit test_one_record
    test_own_bounds test_patterns test_quality test_run_keys test_server_choices_fit test_server_rows_beside_a_box
    test_spherical_fit test_table_runs test_tables test_tree_fit test_verify test_width
"""
FILES = frozenset(_NAMES.split())
