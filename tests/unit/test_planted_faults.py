"""The texts that are replaced to plant faults stand in the files where they are looked for."""

import pytest

from tests.planted_faults import FAULTS, ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault):
    assert (ROOT / fault.path).read_text().count(fault.before) == 1
    tests = [word for word in fault.tests.split() if word.startswith("tests/")]
    assert tests
    assert all((ROOT / test.partition("::")[0]).exists() for test in tests)
