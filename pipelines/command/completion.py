"""Completion for shells: words, Dapple's own flags, and files where a flag takes one."""

from collections.abc import Callable, Mapping

from pipelines.command.words import TOOLS, WORDS
from pipelines.plan import command_line as planning
from pipelines.run.flags import CONFIG_FLAG
from schemas.errors import ConfigError

_LEDGER_ACTIONS = ("limit", "show", "plan", "verify", "export")


def script(shell: str) -> str:
    """What a shell is to read.

    Raises:
      ConfigError: for a shell that is not known.
    """
    if shell not in SHELLS:
        raise ConfigError(f"the shell must be one of {', '.join(SHELLS)}, got {shell}; name one of them.")
    return SHELLS[shell](_answers())


def _answers() -> Mapping[str, tuple[str, ...]]:
    """What may follow each word."""
    common = ("--verbose", "--help")
    jobs = {name: (CONFIG_FLAG, *word.flags, *common) for name, word in WORDS.items()}
    tools: dict[str, tuple[str, ...]] = {
        **{name: tuple(each for each in tool.flags if each[:2] == "--") for name, tool in planning.TOOLS.items()},
        "ledger": (*_LEDGER_ACTIONS, "--ledger"),
        "party": ("new", "enroll", "forget", "--output", CONFIG_FLAG, "--client", "--exchange"),
        "schema": tuple(WORDS),
        "schedule": (),
        "completion": tuple(SHELLS),
    }
    return {**jobs, **tools}


def _bash(answers: Mapping[str, tuple[str, ...]]) -> str:
    cases = "\n".join(f"    {name}) words='{' '.join(each)}' ;;" for name, each in answers.items())
    return f"""# bash: source <(dapple completion bash)
_dapple() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words=''
  COMPREPLY=()
  case $previous in
    --config | --ledger) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    --output | --exchange | --released)
      compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    --run_id | --client) return ;;
  esac
  if ((COMP_CWORD == 1)); then
    words='{" ".join(answers)} --help --version'
  else
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -F _dapple dapple
"""


def _zsh(answers: Mapping[str, tuple[str, ...]]) -> str:
    about = {name: word.about for name, word in WORDS.items()} | dict(TOOLS)
    jobs = "\n".join(f"    {_quoted(f'{name}:{about[name]}')}" for name in answers)
    cases = "\n".join(f"    {name}) compadd -- {' '.join(each)} ;;" for name, each in answers.items())
    return f"""#compdef dapple
# zsh: source <(dapple completion zsh)
_dapple() {{
  local -a jobs
  jobs=(
{jobs}
  )
  case ${{words[CURRENT-1]}} in
    --config | --ledger) _files; return ;;
    --output | --exchange | --released) _files -/; return ;;
    --run_id | --client) return ;;
  esac
  if (( CURRENT == 2 )); then
    _describe job jobs
    compadd -- --help --version
    return
  fi
  case ${{words[2]}} in
{cases}
  esac
}}
compdef _dapple dapple
"""


def _fish(answers: Mapping[str, tuple[str, ...]]) -> str:
    about = {name: word.about for name, word in WORDS.items()} | dict(TOOLS)
    lines = ["# fish: dapple completion fish | source", "complete -c dapple -f"]
    for name, each in answers.items():
        lines.append(f"complete -c dapple -n __fish_use_subcommand -a {name} -d {_quoted(about[name])}")
        inside = f"-n '__fish_seen_subcommand_from {name}'"
        lines += [f"complete -c dapple {inside} -l {flag[2:]}{_fish_value(flag)}" for flag in each if flag[:2] == "--"]
        plain = [word for word in each if word[:2] != "--"]
        lines += [f"complete -c dapple {inside} -a '{' '.join(plain)}'"] if plain else []
    return "\n".join(lines) + "\n"


def _fish_value(flag: str) -> str:
    """Whether a flag takes a value, and of which kind."""
    if flag in ("--verbose", "--help"):
        return ""
    return " -x" if flag in ("--run_id", "--client") else " -r -F"


def _quoted(text: str) -> str:
    """Between single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS: Mapping[str, Callable[[Mapping[str, tuple[str, ...]]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""How each shell is told."""
