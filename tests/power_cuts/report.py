"""The table of results of power cuts."""

import collections
from collections.abc import Sequence

from benchmarks.machine import heading
from tests.power_cuts.replay import Result
from tests.power_cuts.uncut import reason

_ABOUT = """\
A command is recorded call by call, the disk is rebuilt as a cut could leave it after each call that changed it, and the
command is called again there. What was flushed is there. Of what was not flushed there is nothing, all, or one of the
last three changes. A state is counted once, however many calls leave it.

Asserted: nothing that was charged is lost, nothing is drawn twice, no traceback, no hang. A command ends with its
release, or says in a sentence what to do, and that helps.
"""


def report(results: Sequence[Result], sites: Sequence[str]) -> list[str]:
    """Lines of Markdown: a row per job, what was refused, what is wrong, and durable writes that no job makes."""
    reached = set().union(*(each.reached for each in results)) & set(sites)
    cut = set().union(*(each.cut for each in results)) & set(sites)
    lines = [*heading("Power cuts"), _ABOUT]
    lines += ["| job | calls that changed the disk | states | states tried | writes cut of those made | faults | s |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for each in results:
        made = each.reached & set(sites)
        cells = [each.name, each.calls, each.states, each.tried, f"{len(each.cut & made)} of {len(made)}"]
        lines += [f"| {' | '.join(map(str, [*cells, len(each.faults), round(each.seconds)]))} |"]
    lines += [
        f"\nCalls of durable writers in the source: {len(sites)}. These jobs make {len(reached)}, of which {len(cut)} "
        "were cut.\n"
    ]
    refused = sorted((each.name, text, count) for each in results for text, count in each.refused.items())
    if refused:
        lines += ["## Refused with a remedy that helps\n"]
        lines += [f"- {name}, {count} times: {text}" for name, text, count in refused] + [""]
    faults = [(each.name, fault) for each in results for fault in each.faults]
    if faults:
        lines += ["## Faults\n"]
        lines += [f"- {name}: {fault.cut}: {fault.what}" for name, fault in faults] + [""]
    absent = collections.defaultdict(list)
    for site in sites:
        if site not in cut:
            path, line, function = site.split(":")
            absent[path, reason(site)].append(f"{function} ({line})")
    lines += ["## Writes in the source that these jobs do not cut, and why none needs to\n"]
    lines += [f"- `{path}`: {', '.join(found)}: {why}" for (path, why), found in absent.items()]
    return lines
