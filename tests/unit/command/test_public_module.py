"""The public module leaves the log of the program that imports it as it was."""

import subprocess
import sys

ROOT_HANDLERS = "print(logging.getLogger().handlers)\n"


def ran(script):
    return subprocess.run(
        [sys.executable, "-c", f"import logging\n{script}"], capture_output=True, text=True, check=True
    )


def test_no_name_makes_a_log():
    """One process takes one name after the other, since a log that one had made would stay."""
    names = ("fit", "DPKMeans", "PrivateScaler, ConfigError", "*")
    done = ran("".join(f"from dapple_dp import {each}\n{ROOT_HANDLERS}" for each in names))
    assert (done.stdout, done.stderr) == ("[]\n" * len(names), "")


def test_a_program_with_a_log_has_what_libraries_say_in_it():
    script = "logging.basicConfig(format='shown: %(message)s')\nfrom dapple_dp import DPKMeans\n"
    done = ran(script + ROOT_HANDLERS)
    assert done.stdout == "[<StreamHandler <stderr> (NOTSET)>]\n"
    assert done.stderr == "" or done.stderr.startswith("shown: ")


def test_an_import_that_fails_leaves_no_handler():
    script = (
        "import sys\nsys.modules['dapple_dp.estimator.dp_kmeans'] = None\ntry:\n    from dapple_dp import DPKMeans\n"
        f"except ImportError:\n    {ROOT_HANDLERS}"
    )
    assert ran(script).stdout == "[]\n"
