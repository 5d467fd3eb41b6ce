"""A session of pytest in this process, with a plugin that ends it at the first test that fails.

Tests run as they do in the whole suite, with all their examples; only examples that fail are not made smaller.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest

_DONE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def session(arguments: tuple[str, ...], plugin: Any) -> Any:
    """Runs pytest with a plugin, and returns its answer; where a conftest cannot be imported, no hook is called."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    words = ["-x", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    status = pytest.main(words, [_Quick(), plugin])
    if status not in _DONE and not plugin.answer.get("failed"):
        plugin.answer["failed"] = "collection"
    return plugin.answer


class _Quick:
    """Examples that fail are not made smaller: nobody reads them."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        for test in {id(each.obj): each.obj for each in items if isinstance(each, pytest.Function)}.values():
            test = getattr(test, "__func__", test)
            own = getattr(test, "_hypothesis_internal_use_settings", None)
            if own is not None:
                test._hypothesis_internal_use_settings = hypothesis.settings(own, phases=phases)


class Verdict:
    """The first test that fails.

    Args:
      put: puts the change into place.
      limits: seconds of processors after which a test has no end.
    """

    def __init__(self, put: Callable[[], None] = lambda: None, *, limits: dict[str, float] | None = None):
        self.put, self._limits = put, limits or {}
        self.answer: dict[str, Any] = {"failed": None, "why": ""}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, self._limits.get(nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.answer["failed"]:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.answer |= {
                "failed": report.nodeid,
                "why": crash.message[:160] if crash else str(report.longrepr)[-160:],
            }

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.answer["failed"] = self.answer["failed"] or (None if exitstatus in _DONE else "collection")


def run(verdict: Verdict, names: list[str], items: dict[str, pytest.Item]) -> Any:
    """Runs collected tests in a forked process with changed code, up to the first that fails."""
    verdict.put()
    if (streams := sys.modules.get("tests.scenes.repeatable_bytes")) is not None:
        streams._owner = os.getpid()  # type: ignore[attr-defined]
    chosen = [items[each] for each in names]
    chosen[0].config.pluginmanager.register(verdict)
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if verdict.answer["failed"]:
            break
    return verdict.answer
