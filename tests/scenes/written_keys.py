"""Files in which keys that tests write draw as they are; in all others every run derives its own, as users have it.

Most of them compare what several runs release. Those with slow tests are here, too, unless someone has looked.
"""

_NAMES = """
    test_asked_twice test_assign test_audit_runs test_bad_files test_beam_yaml test_cells
    test_clean_after_kills test_client_epoch test_client_id_kinds test_clustered_fl test_clustered_rounds
    test_crash_points test_csv_dialects test_csv_jobs test_csv_seams test_csv_tutorial test_dp_lloyd
    test_edge_cases test_elbow test_encode test_epoch_crashes test_estimator test_exactness
    test_exchange_senders test_fan_in test_federated_digits test_first_job test_flink test_foreign_packages
    test_graph test_input_digests test_interruption test_k_prototypes_fit test_key_checks test_ledger_runs
    test_ledger_store test_local_runners test_medians_fit test_noise_share_jobs test_outputs test_pairwise_garbage
    test_pairwise_jobs
    test_paper_figures test_party_signatures test_patterns test_plan_of_examples test_power_cuts test_prepare
    test_prism test_privacy_flow test_profile test_quality test_recurring_fit test_report test_report_browser
    test_report_columns test_report_windows test_reports test_round_driver test_s3 test_same_centers test_schedule
    test_sealed_files test_spherical_fit test_sweep test_table_runs test_three_hospitals
    test_topic_reports test_topic_windows test_training_rows test_tree_fit test_wheel test_wheel_workers test_width
"""
FILES = frozenset(_NAMES.split())
