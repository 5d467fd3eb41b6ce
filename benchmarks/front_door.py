"""Minutes from a checkout to a result: the lines that install Dapple, and then the commands of a page, one by one.

Everything is typed on a terminal, in a fresh checkout, in an environment that knows nothing of this one. A question is
answered as the page says: a row such as ``| `age` | `18,100` |`` of a table answers the question about that column.

    python -m benchmarks.front_door docs/tutorials/csv.md --out benchmarks/results/front_door.md
"""

import contextlib
import os
import pty
import re
import select
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import machine, measurement
from benchmarks.own_environment import CONSOLE, INSTALL, ROOT, Done, checkout, install_lines, megabytes, variables

_ANSWER = re.compile(r"^\| `(\w+)` \| `([^`]+)` \|", re.MULTILINE)
_KEPT = '[ ! -f ~/.state ] || {{ . ~/.state; cd "$PWD"; }}\n{}\ncode=$?; export -p > ~/.state; exit $code'
"""A command as the next one in one shell: an environment stays activated, and a folder entered."""
_PATIENCE = 900.0


def commands(text: str) -> list[str]:
    """Commands of the console blocks of a page, without those that install Dapple; some go over several lines."""
    found = [""]
    for line in "\n".join(CONSOLE.findall(text.replace("\n".join(install_lines()), ""))).splitlines():
        found[-1] += f"{line}\n"
        checked = subprocess.run(["bash", "-n", "-c", found[-1]], capture_output=True, text=True, check=False)
        # Bash only warns of a text whose end is missing.
        if not checked.stderr and not line.endswith("\\"):
            found.append("")
    return [each.strip() for each in found if each.strip() and not each.startswith("#")]


def answers(text: str) -> dict[str, str]:
    """Columns that a page is asked about, with their answers."""
    return dict(_ANSWER.findall(text))


def typed(command: str, home: Path, folder: Path, known: dict[str, str]) -> Done:
    """Runs a command on a terminal and answers its questions; raises SystemExit if it fails or falls silent."""
    start = time.perf_counter()
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder)
        os.execve("/bin/bash", ["bash", "-c", _KEPT.format(command)], variables(home) | {"TERM": "xterm"})
    said, answered = "", 0
    with contextlib.suppress(OSError):
        while select.select([terminal], [], [], _PATIENCE)[0] and (found := os.read(terminal, 1 << 16)):
            said += found.decode(errors="replace").replace("\r\n", "\n")
            asked = said[answered:].rpartition("\n")[2]
            for column, answer in known.items():
                if asked.endswith(": ") and f'"{column}"' in asked:
                    os.write(terminal, f"{answer}\n".encode())
                    answered = len(said)
    os.close(terminal)
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise SystemExit(f"{command} ended with {code}: {said}")
    return Done(said, code, time.perf_counter() - start, used.ru_utime + used.ru_stime)


def shown(command: str) -> str:
    """A command in a cell of a table; of one that goes on after a line, that line."""
    return command.partition("\\\n")[0].partition("\n")[0].strip().replace("|", "\\|")


def results(page: Path, done: list[tuple[str, Done]], n_installing: int, size: float) -> list[str]:
    """The lines of the results."""
    rows = [f"| `{shown(command)}` | {each.wall:.1f} | {each.cpu:.1f} |" for command, each in done]
    parts = (done[:n_installing], done[n_installing:])
    sums = [(sum(each.wall for _, each in part), sum(each.cpu for _, each in part)) for part in parts]
    return [
        *machine.heading("The front door: minutes from a checkout to a result"),
        f"The lines of `{INSTALL.relative_to(ROOT)}`, and then the commands of `{page}`, on a terminal in a "
        f"fresh checkout. Nothing had been downloaded before. Installing took {sums[0][0] / 60:.1f} minutes "
        f"({sums[0][1] / 60:.1f} of CPU time), and the commands of the page {sums[1][0] / 60:.1f} "
        f"({sums[1][1] / 60:.1f}). Then the environment had {size:.0f} MB.",
        "",
        "| command | wall, s | CPU, s |",
        "| --- | --- | --- |",
        *rows,
    ]


def main() -> None:
    """Installs, follows the page, and writes the results."""
    parser = measurement.script(__doc__)
    parser.add_argument("page", type=Path, help="page whose console blocks are run, such as docs/tutorials/csv.md")
    options = parser.parse_args()
    text = options.page.read_text()
    with tempfile.TemporaryDirectory(prefix="dapple-") as place:
        home = Path(place)
        sources, lines = checkout(home / "checkout"), install_lines()
        done = [(line, typed(line, home, sources, {})) for line in lines]
        done += [(line, typed(line, home, sources, answers(text))) for line in commands(text)]
        size = megabytes(home / "dapple-env")
    measurement.show(results(options.page, done, len(lines), size), options.out)


if __name__ == "__main__":
    main()
