#!/usr/bin/env bash
# Clusters the partition of one date, once, starting from the centers of the last date before it.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: run_partition.sh DATE [BEAM FLAGS]   DATE as YYYY-MM-DD; other words go to `dapple fit`

Settings are environment variables:
  DAPPLE   the command; default: dapple
  JOB      the job's YAML file, with @DATE@ where the date goes; default: job.yaml beside this script
  RUNS     local folder that gets DATE.yaml, the job as it is run, and DATE/, its result; default: runs

Exit codes are those of `dapple fit`; 3, refused by the ledger, is final until the budget or the job is another one.
Then change the job file: the next attempt of the date takes it as it is.
TEXT
}

say() { printf 'run_partition: %s\n' "$*" >&2; }

# The job of a date stays as it is while an attempt of it has left its staging folder: noise may have been drawn for it,
# and a second attempt must be the same job, or it would be another run. An attempt that was refused has left nothing,
# so the job is rewritten, from the job file as it is now.
write_job() { # write_job DATE PREVIOUS
  local target=$runs/$1.yaml previous
  if [[ -e $target && -d $runs/$1.partial-$1 ]]; then return; fi
  {
    sed "s/@DATE@/$1/g" "$job"
    if [[ -n $2 ]]; then
      previous=${2//\'/\'\'}
      printf "\nrecurring: {previous: '%s'}\n" "$previous"
    fi
  } >"$target.part"
  mv "$target.part" "$target"
}

# The folder of the last finished run before a date; dates sort like text.
last_before() { # last_before DATE
  local found='' folder
  for folder in "$runs"/????-??-??; do
    if [[ ${folder##*/} < $1 && -f $folder/run.json ]]; then found=$folder; fi
  done
  printf '%s' "$found"
}

case ${1:-} in
  -h | --help)
    usage
    exit
    ;;
  [0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]) ;;
  *)
    say "DATE must be written as YYYY-MM-DD, got '${1:-}'; give one date."
    exit 2
    ;;
esac

date=$1
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
job=${JOB:-$here/job.yaml}
mkdir -p "${RUNS:-runs}"
runs=$(cd -- "${RUNS:-runs}" && pwd -P)

# One date at a time, since each starts from one before it. The lock is the job's until it ends, however it ends.
exec 9>"$runs/.lock"
if command -v flock >/dev/null && ! flock -n 9; then
  say "another date is running in $runs; try again when it has ended."
  exit 75
fi
if [[ -f $runs/$date/run.json ]]; then
  say "$date is done: $runs/$date"
  exit
fi
write_job "$date" "$(last_before "$date")"
exec "${DAPPLE:-dapple}" fit --config "$runs/$date.yaml" --output "$runs/$date" --run_id "$date" "${@:2}"
