"""The public module leaves the log of the program that imports it as it was."""

import subprocess
import sys

import pytest

IMPORT = "import logging, sys\nfrom dapple_dp import DPKMeans\n"
ROOT_HANDLERS = "print(logging.getLogger().handlers)\n"


def ran(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)


def test_a_program_without_a_log_gets_none():
    done = ran(IMPORT + ROOT_HANDLERS)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("names", ["fit", "DPKMeans, PrivateScaler, ConfigError", "*"])
def test_no_name_makes_a_log(names):
    done = ran(f"from dapple_dp import {names}\nimport logging\n" + ROOT_HANDLERS)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_program_with_a_log_has_what_libraries_say_in_it():
    done = ran("import logging\nlogging.basicConfig(format='shown: %(message)s')\n" + IMPORT + ROOT_HANDLERS)
    assert done.stdout == "[<StreamHandler <stderr> (NOTSET)>]\n"
    assert done.stderr == "" or done.stderr.startswith("shown: ")


def test_an_import_that_fails_leaves_no_handler():
    script = (
        "import sys, logging\nsys.modules['dapple_dp.api'] = None\ntry:\n    from dapple_dp import DPKMeans\n"
        "except ImportError:\n    print(logging.getLogger().handlers)\n"
    )
    assert ran(script).stdout == "[]\n"
