"""Immediate answers of the command: pages, version, completion, refusals, near matches, interruptions."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from dapple_dp.pipelines.command import interruption
from dapple_dp.pipelines.command import main as command
from dapple_dp.pipelines.command.words import GROUPS, TOOLS, WORDS, spelled
from dapple_dp.pipelines.run.flags import FLAGS
from dapple_dp.schemas.errors import InputError
from tests.scenes.json_schema import plain

QUICK = {
    "help": ["--help"],
    "help of a job": ["fit", "--help"],
    "help of the ledger": ["ledger", "--help"],
    "version": ["--version"],
    "completion": ["tools", "completion", "bash"],
    "schema": ["tools", "schema", "fit"],
    "help of a group": ["masked", "--help"],
    "old word": ["schema", "fit"],
    "unknown job": ["fitt"],
    "missing flag": ["fit", "--config", "job.yaml"],
    "missing config": ["fit", "--config", "missing.yaml", "--output", "out"],
    "wrong config": ["fit", "--config", "wrong.yaml", "--output", "out"],
    "setting as a flag": ["fit", "--config", "job.yaml", "--output", "out", "--epsilon", "3"],
    "missing store": ["fit", "--config", "job.yaml", "--output", "hdfs://host/out"],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.yaml").write_text(WORDS["fit"].example)
    (tmp_path / "wrong.yaml").write_text(WORDS["fit"].example.replace("n_clusters", "n_clusers"))
    return tmp_path


def answer(capsys, *words):
    code = command.main(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_fit_is_there_before_libraries_that_its_first_round_does_not_need(folder):
    """Accountants and scikit-learn take half a second each; only what searches a plan, or clusters, waits for them.

    Beam imports pandas where it finds it. Here it finds none, and who needed it would say so.
    """
    script = (
        "import sys\nsys.modules['pandas'] = None\n"
        "import dapple_dp.pipelines.jobs.run_job\n"
        "import dapple_dp.pipelines.kmeans.fit, dapple_dp.pipelines.kmeans.report.files\n"
        "late = {'sklearn', 'scipy', 'dp_accounting', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported: {late}' if late else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_answers_before_beam_is_imported(folder):
    """One process answers one command after the other, since what it has imported would stay."""
    script = (
        "import contextlib, io, json, sys\nfrom dapple_dp.command import main\nfound = {}\n"
        "for name, words in json.loads(sys.stdin.read()).items():\n"
        "    out, err = io.StringIO(), io.StringIO()\n    sys.argv[1:] = words\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n        code = main()\n"
        "    heavy = {'apache_beam', 'sklearn', 'scipy', 'pyarrow', 'dp_accounting', 'matplotlib'} & set(sys.modules)\n"
        "    found[name] = [code, sorted(heavy), out.getvalue() + err.getvalue()]\n"
        "print(json.dumps(found))\n"
    )
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=folder, input=json.dumps(QUICK), capture_output=True, text=True, check=True)
    answers = json.loads(done.stdout)
    assert answers.keys() == QUICK.keys()
    for name, (code, heavy, said) in answers.items():
        assert (code in (0, 2), heavy) == (True, []), (name, said)
        assert said, name
        assert "Traceback" not in said, name


def test_the_help_page_has_a_line_per_word(capsys):
    code, page, said = answer(capsys, "--help")
    lines = page.splitlines()
    assert (code, said) == (0, "")
    for name, about in {**{name: word.about for name, word in WORDS.items()}, **TOOLS}.items():
        if spelled(name) == name:
            assert [line for line in lines if line.split()[:1] == [name] and line.endswith(about)]
    for group, (about, names) in GROUPS.items():
        assert [line for line in lines if line.split()[:1] == [group] and line.endswith(f"{about}: {', '.join(names)}")]
        code, below, said = answer(capsys, group, "--help")
        assert (code, said) == (0, "")
        assert all(re.search(rf"^  {name} +\w", below, re.MULTILINE) for name in names)
    assert max(map(len, lines)) <= 100
    assert answer(capsys, "-h") == (0, page, "")


@pytest.mark.parametrize("name", WORDS)
def test_the_page_of_a_job_has_flags_example_and_exit_codes(capsys, name):
    code, page, _ = answer(capsys, *spelled(name).split(), "--help")
    assert code == 0
    for flag in ("--config", *WORDS[name].flags):
        assert f"  {flag} " in page
        assert FLAGS[flag].help in page
    assert {"--verbose", "--help"} <= set(page.split())
    example = page.partition(f"({name}.yaml):\n")[2].partition("\n\n")[0]
    assert plain(example) == plain(WORDS[name].example)
    assert "130" in page
    assert f"# yaml-language-server: $schema={name}.schema.json" in page
    assert max(map(len, page.splitlines())) <= 120


@pytest.mark.parametrize("name", TOOLS)
def test_other_words_have_a_page(capsys, name):
    code, page, _ = answer(capsys, *spelled(name).split(), "--help")
    assert (code, page.startswith(f"usage: dapple {spelled(name)}")) == (0, True)
    assert TOOLS[name] in page


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["fitt"], "got fitt; did you mean fit?"),
        (["evalute"], "got evalute; did you mean evaluate?"),
        (["legder"], "got legder; did you mean ledger?"),
        (["zzz"], "got zzz; run dapple --help."),
        ([], "got nothing; run dapple --help."),
        (["tools", "schema", "profil"], "got profil; did you mean profile?"),
        (["tools", "schema", "ledger"], "got ledger; run dapple --help."),
    ],
)
def test_an_unknown_job_is_refused_with_the_nearest_name(capsys, words, remedy):
    code, out, said = answer(capsys, *words)
    assert (code, out) == (2, "")
    assert said.startswith("dapple: the job must be one of fit, ")
    assert said.endswith(f"{remedy}\n")


@pytest.mark.parametrize("words", ["schema", "schema fit x", "completion", "schedule x"])
def test_too_few_or_too_many_words_are_refused(capsys, words):
    code, out, said = answer(capsys, "tools", *words.split())
    assert (code, out) == (2, "")
    assert f"must be `dapple tools {words.split()[0]}" in said


@pytest.mark.parametrize("words", [("masked",), ("masked", "fit"), ("reports", "upload"), ("tools", "ledger", "show")])
def test_a_group_is_followed_by_one_of_its_words(capsys, words):
    code, out, said = answer(capsys, *words)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert f"must be `dapple {words[0]} {'|'.join(GROUPS[words[0]][1])} ...`" in said


@pytest.mark.parametrize("name", [name for _, names in GROUPS.values() for name in names])
def test_a_word_that_got_a_group_still_works_alone_and_says_so_once(capsys, name):
    code, page, said = answer(capsys, name, "--help")
    assert (code, page) == answer(capsys, *spelled(name).split(), "--help")[:2]
    line = f"`dapple {name}` is deprecated and will be removed in 0.4.0, not before 2027-05-31"
    assert said == f"dapple: warning: {line}; use `dapple {spelled(name)}`\n"


def test_schedule_names_the_folder_of_its_files(capsys):
    code, out, _ = answer(capsys, "tools", "schedule")
    assert code == 0
    assert {"airflow_dag.py", "crontab", "run_partition.sh"} <= set(os.listdir(out.strip()))


def test_the_version_is_a_line(capsys):
    code, out, _ = answer(capsys, "--version")
    assert (code, out.split()[0], len(out.split())) == (0, "dapple", 2)


@pytest.mark.parametrize("flag", ["--output", "--run_id"])
def test_a_name_that_is_refused_is_refused_early(capsys, folder, flag):
    words = {"--config": str(folder / "job.yaml"), "--output": "out", flag: "hdfs://b/x"}
    code, _, said = answer(capsys, "fit", *(part for pair in words.items() for part in pair))
    assert code == 2
    assert ("pip install 'apache-beam[hadoop]<2.78,>=2.76.0'" in said) == (flag == "--output")


@pytest.mark.parametrize(
    ("place", "extra"), [("s3://b/x", "aws"), ("gs://b/x", "gcp"), ("azfs://b/x", "azure"), ("hdfs://b/x", "hdfs")]
)
def test_a_missing_library_of_a_store_is_named(capsys, folder, monkeypatch, place, extra):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (folder / "job.yaml").write_text(WORDS["fit"].example.replace("path: lake", f"path: {place}"))
    code, out, said = answer(capsys, "fit", "--config", str(folder / "job.yaml"), "--output", str(folder / "out"))
    assert (code, out) == (2, "")
    own = " 'obstore<0.13,>=0.12'" if extra == "aws" else ""
    assert said == (
        f"dapple: data.path needs the library for {place.partition('b/')[0]}, which is not "
        f"installed; run pip install 'apache-beam[{'hadoop' if extra == 'hdfs' else extra}]<2.78,>=2.76.0'{own}.\n"
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The command, as a program that a shell may ask."""
    path = tmp_path_factory.mktemp("bin") / "dapple"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m dapple_dp "$@"\n')
    path.chmod(0o755)
    return path


def complete(program, *words):
    """Returns what bash offers for the last of some words, and what it is asked to look for itself."""
    line = (
        f'complete() {{ :; }}\ncompopt() {{ echo "$2"; }}\n{command.completion_script("bash")}\n'
        f"COMP_WORDS=({' '.join(words)})\nCOMP_CWORD={len(words) - 1}\n_dapple_completion {program}\n"
        "printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["dapple", "f"], {"fit"}),
        (["dapple", "cl"], {"clustered_fl"}),
        (["dapple", "re"], {"reports"}),
        (["dapple", "tools", "c"], {"clean", "completion"}),
        (["dapple", "--v"], {"--version"}),
        (["dapple", "masked", "upload", "--c"], {"--config", "--client"}),
        (["dapple", "fit", "--out"], {"--output"}),
        (["dapple", "fit", "--runner=x", "--runner", "y", "--out"], {"--output"}),
        (["dapple", "ledger", "s"], {"show"}),
        (["dapple", "ledger", "limit", "--ep"], {"--epsilon"}),
        (["dapple", "masked", "party", "e"], {"enroll"}),
        (["dapple", "tools", "schema", "pro"], {"profile"}),
        (["dapple", "tools", "completion", "z"], {"zsh"}),
        (["dapple", "fit", "--run_id", "x"], set()),
        (["dapple", "fit", "--config", "jo"], {"default"}),
        (["dapple", "verify", "ru"], {"default"}),
    ],
)
def test_bash_completes(program, words, offered):
    """Bash itself looks for files by `default`."""
    assert set(complete(program, *words)) == offered


def test_a_shell_is_answered_before_beam_is_imported():
    script = (
        "import sys\nfrom dapple_dp.command import main\ncode = main()\n"
        "assert 'apache_beam' not in sys.modules\nsys.exit(code)\n"
    )
    asked = {"_DAPPLE_COMPLETE": "bash_complete", "COMP_WORDS": "dapple fit --out", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("plain,--output\n", "")


@pytest.mark.parametrize("shell", command.SHELLS)
def test_completion_is_a_script_of_its_shell(shell):
    script = command.completion_script(shell)
    assert f"_DAPPLE_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_a_shell_that_is_not_known_is_refused(capsys):
    code, _, said = answer(capsys, "tools", "completion", "tcsh")
    assert (code, said) == (2, "dapple: the shell must be one of bash, zsh, fish, got tcsh; name one of them.\n")


def interrupted_job(monkeypatch, job):
    monkeypatch.setattr(command, "_summary", lambda words: job())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("turned", [None, RuntimeError, InputError])
def test_an_interruption_is_reported_as_one_whatever_libraries_make_of_it(capsys, monkeypatch, number, turned):
    def job():
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        except KeyboardInterrupt:
            if turned is None:
                raise
            raise turned("cannot schedule new futures") from None

    before = signal.getsignal(number)
    interrupted_job(monkeypatch, job)
    code, out, said = answer(capsys, "fit")
    assert (code, out, said) == (130, "", f"dapple: {interruption.SENTENCE}\n")
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("words", ["masked party", "masked party check", "masked upload", "stream", "init", "verify"])
def test_who_has_no_run_id_is_not_asked_for_it_after_an_interruption(capsys, monkeypatch, words):
    def job():
        raise KeyboardInterrupt

    interrupted_job(monkeypatch, job)
    code, out, said = answer(capsys, *words.split())
    assert (code, out) == (130, "")
    assert said.endswith(f"dapple: {interruption.GO_ON}\n")
    assert "Run the same command again" in said
    assert "--run_id" not in said
    assert "--run_id" in answer(capsys, "masked", "unmask")[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_was_switched_off_stays_so(capsys, monkeypatch, number):
    """Signals are switched off by nohup, and by a shell for what it runs in the background."""

    def job():
        os.kill(os.getpid(), number)
        return {}

    before = signal.signal(number, signal.SIG_IGN)
    try:
        interrupted_job(monkeypatch, job)
        assert answer(capsys, "fit") == (0, "{}\n", "")
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_an_error_before_a_signal_is_reported_as_that_error(capsys, folder):
    code, out, said = answer(capsys, "fit", "--config", str(folder / "none.yaml"), "--output", str(folder / "out"))
    assert (code, out) == (2, "")
    assert said.startswith("dapple: --config must be")


def test_a_second_signal_ends_the_process_at_once():
    script = (
        "import os, signal\nfrom dapple_dp.pipelines.command.interruption import interruptible\n"
        "with interruptible():\n"
        "    try:\n        os.kill(os.getpid(), signal.SIGINT); signal.pause()\n"
        "    except KeyboardInterrupt:\n        os.kill(os.getpid(), signal.SIGTERM); signal.pause()\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=600).returncode == -signal.SIGTERM


def test_in_a_thread_nothing_is_watched(capsys):
    codes = []
    thread = threading.Thread(target=lambda: codes.append(command.main(["tools", "schema", "fit"])))
    thread.start()
    thread.join()
    assert codes == [0]


def test_threads_that_work_on_do_not_hold_a_process_that_was_interrupted():
    script = (
        "import threading, time\nfrom dapple_dp.pipelines.command import interruption\ninterruption._GRACE = 0.2\n"
        "threading.Thread(target=time.sleep, args=(900,)).start()\ninterruption.end_soon()\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=600).returncode == 130


def test_a_command_leaves_no_core_dump():
    """Rows and keys in its memory would be in it; processes that it starts inherit the limit."""
    script = """
import resource
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
import dapple_dp.command
from dapple_dp.pipelines.command import main
main.main = lambda: print(resource.getrlimit(resource.RLIMIT_CORE)[0])
dapple_dp.command.main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) in (0, 1)
