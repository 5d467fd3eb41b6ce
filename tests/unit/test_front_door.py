"""How the benchmark of the front door reads a page, types its commands, and answers questions."""

import pytest

from benchmarks import front_door
from benchmarks.own_environment import install_lines

LINES = "\n".join(install_lines())
PAGE = f"""# Try

```console
{LINES}
dapple --version  # says the version
```

```console
# makes rows
cat > rows.csv <<END
age,hours
END
dapple \\
  --help
```

| asked for | type |
| --- | --- |
| `age` | `18,90` |

```yaml
data: {{path: rows.csv}}
```
"""


def test_a_page_has_commands_over_several_lines_and_none_that_installs():
    assert front_door.commands(PAGE) == [
        "dapple --version  # says the version",
        "cat > rows.csv <<END\nage,hours\nEND",
        "dapple \\\n  --help",
    ]


def typed(tmp_path, command, answers=()):
    return front_door.typed(command, tmp_path, tmp_path, dict(answers))


def test_a_question_gets_the_answer_of_the_page(tmp_path):
    command = """python3 -c 'print(input("Public interval of \\"age\\", such as 0,100: ").upper())'"""
    done = typed(tmp_path, command, front_door.answers(PAGE))
    assert done.said.splitlines()[-1] == "18,90"


def test_commands_follow_each_other_as_in_one_shell(tmp_path):
    for command in ("mkdir here && cd here", "export WHO=me"):
        typed(tmp_path, command)
    assert typed(tmp_path, "echo $WHO in ${PWD##*/}").said == "me in here\n"


def test_variables_of_this_process_are_not_seen(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert typed(tmp_path, "echo [$PYTHONPATH]").said == "[]\n"


def test_a_command_that_fails_stops_all(tmp_path):
    with pytest.raises(SystemExit, match=r"(?s)echo no; false ended with 1: no"):
        typed(tmp_path, "echo no; false")


def test_a_pipe_is_no_border_of_a_cell():
    assert front_door.shown("dapple fit --help | head \\\n  -3") == r"dapple fit --help \| head"
