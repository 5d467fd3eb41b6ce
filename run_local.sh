#!/usr/bin/env bash
# Sets up .venv beside this script and runs something in it; needs nothing but Python 3.11, 3.12 or 3.13.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
venv=$root/.venv
python=$venv/bin/python
stamp=$venv/.installed

usage() {
  cat <<'TEXT'
Usage: ./run_local.sh               run the census example end to end
       ./run_local.sh test          run the quick tests
       ./run_local.sh test all      run the slow ones as well, as .ci/run does
       ./run_local.sh test nightly  run those that are rare or long, as before a release
       ./run_local.sh test ARGS     run parts of the suite; ARGS go to pytest, after a tier or without one
       ./run_local.sh lint          ruff check, ruff format --check, mypy
       ./run_local.sh docs          build the site, notebooks executed, and say where it is
       ./run_local.sh JOB [ARGS]    run a job, the same as `dapple JOB ARGS`
       ./run_local.sh flink-up      start a Flink cluster on this machine and print the flags of jobs for it
       ./run_local.sh flink-down    stop it
       ./run_local.sh prism-up      build the Prism runner and print the flags of jobs for it
       ./run_local.sh --help        print this text

The first run creates .venv beside the script and installs the pinned requirements. Flink needs Java and Maven, Prism
needs Go; both are fetched to .runners beside the script.
TEXT
}

say() { printf 'run_local: %s\n' "$*" >&2; }

# A command of the right name may be a shim that starts nothing, so each candidate is made to run.
find_python() {
  local candidate
  for candidate in python3.11 python3.12 python3.13 python3 python; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
      >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  say 'no working Python 3.11, 3.12 or 3.13 with the venv module on PATH; install one and run this again.'
  return 1
}

# What the environment was built from. The folder is part of it: a copied .venv points back to where it came from.
fingerprint() {
  {
    printf '%s\n' "$root"
    "$python" -c 'import sys; print(sys.version)'
    cat "$root"/requirements*.txt "$root/setup.py" "$root"/transforms/numerics/kernel/*.c
  } | cksum
}

pip_install() { "$python" -m pip --disable-pip-version-check install -q "$@" >&2; }

# The stamp is removed first and written last, so an interrupted install is started afresh by the next run.
set_up() { # set_up run|dev|docs; what one level needs is there on the next ones, too
  local level=$1 built='' have='' base
  if [[ -f $stamp ]] && built=$(fingerprint 2>/dev/null); then
    have=$(<"$stamp")
    case $level-${have#"$built "} in run-run | run-dev | run-docs | dev-dev | dev-docs | docs-docs) return ;; esac
  fi
  rm -f "$stamp"
  if [[ -z $built || $have != "$built "* ]]; then
    base=$(find_python)
    say "creating .venv with $("$base" --version) and installing requirements; this takes a minute or two."
    "$base" -m venv --clear "$venv"
    pip_install -r "$root/requirements.txt"
    pip_install --no-deps --no-build-isolation --editable "$root"
  fi
  if [[ $level != run ]]; then
    say 'installing what tests and lint need.'
    pip_install -r "$root/requirements-dev.txt"
    pip_install --no-deps -r "$root/requirements-audit.txt"
  fi
  if [[ $level == docs ]]; then
    say 'installing what the site needs.'
    pip_install -r "$root/requirements-docs.txt"
  fi
  printf '%s %s\n' "$(fingerprint)" "$level" >"$stamp"
}

case ${1:-} in
  -h | --help)
    usage
    ;;
  '')
    set_up run
    exec "$python" "$root/examples/census/run.py"
    ;;
  test)
    set_up dev
    cd "$root"
    shift
    # A tier runs on all cores, a file at a time on each, and says what it skips; parts are left to pytest.
    tier=()
    case ${1:-quick} in
      quick) tier=(-m 'not slow and not nightly') ;;
      all) tier=(-m 'not nightly') ;;
      nightly) tier=(-m nightly) ;;
    esac
    [[ $# -eq 0 || ${#tier[@]} -eq 0 ]] || shift
    [[ $# -gt 0 ]] || tier+=(-n auto --dist loadfile -rs)
    # Where compiled files are not kept, every process compiles the project anew and rewrites all tests.
    unset PYTHONDONTWRITEBYTECODE
    exec "$python" -m pytest ${tier[@]+"${tier[@]}"} "$@"
    ;;
  lint)
    set_up dev
    cd "$root"
    "$python" -m ruff check .
    "$python" -m ruff format --check .
    "$python" -m mypy
    ;;
  docs)
    set_up docs
    cd "$root"
    # Every warning of the site is an error. What Beam and Jupyter say while notebooks run is none.
    "$python" -m sphinx -q -E -W --keep-going -b html -d out/docs/doctrees docs out/docs/html
    say "the site is there: $root/out/docs/html/index.html"
    ;;
  flink-up | flink-down | prism-up)
    set_up run
    cd "$root"
    exec "$python" -m deploy.local "$1"
    ;;
  *)
    set_up run
    # Safe path: a folder named `dapple_dp` in the caller's folder must not stand in for ours; it ensures the rest.
    PYTHONSAFEPATH=1 exec "$python" -m dapple_dp "$@"
    ;;
esac
