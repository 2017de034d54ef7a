#!/usr/bin/env bash
# Usage: [TRAIN_SCRIPT=train_swepdb_4b.sh] [DEADLINE_SECONDS=86400] [MAX_RESTARTS=100] train_swepdb_wrapper.sh [KEY=VALUE...]   Runs a training script until it succeeds.
# A run that fails, or that still runs after DEADLINE_SECONDS, is started again by the same command, which resumes from
# the last checkpoint and the stored attempts. Only processes that this script started are ended, by their group.
set -euo pipefail
here="$(cd "$(dirname "$(readlink -f "$0")")" && pwd)"
case " $* " in *" --help "* | *" -h "*) sed -n '2,${/^#/!q; s/^# //p}' "$0"; exit ;; esac
script="${TRAIN_SCRIPT:-train_swepdb_4b.sh}"
[[ $script == */* ]] || script="$here/$script"
logs="${LOG_DIR:-$here/wrapper_logs}"

fail() {
  echo "error: $1" >&2
  exit 2
}

# number NAME LEAST: prints a variable's whole number.
number() {
  [[ ${!1} =~ ^(0|[1-9][0-9]{0,8})$ && ${!1} -ge $2 ]] || fail "$1=${!1}; expected a whole number, $2 or more"
  echo "${!1}"
}

for word in "$@"; do
  [[ $word == *=* ]] || fail "$word: expected KEY=VALUE, which $(basename "$script") is given"
done
[ -f "$script" ] && [ -x "$script" ] || fail "TRAIN_SCRIPT=$script; expected a script that can be run"
DEADLINE_SECONDS="${DEADLINE_SECONDS:-86400}" MAX_RESTARTS="${MAX_RESTARTS:-100}"
GRACE_SECONDS="${GRACE_SECONDS:-120}" PAUSE_SECONDS="${PAUSE_SECONDS:-10}"
deadline="$(number DEADLINE_SECONDS 1)"
most="$(number MAX_RESTARTS 0)"
grace="$(number GRACE_SECONDS 0)"
pause="$(number PAUSE_SECONDS 0)"
echo "$(basename "$0") stands for $(basename "$script"), again until it ends well: at most $deadline s a run, $most restarts" >&2
mkdir -p "$logs" 2>/dev/null || fail "LOG_DIR=$logs: cannot be made; expected a folder in which this user may write"

# Ends a group of processes that this script started: first as Ctrl-C would, so that journals are closed.
end() {
  kill -INT -- "-$1" 2>/dev/null || return 0
  for _ in $(seq "$grace"); do
    kill -0 -- "-$1" 2>/dev/null || return 0
    sleep 1
  done
  kill -KILL -- "-$1" 2>/dev/null || true
}

group=""
trap '[ -z "$group" ] || end "$group"' EXIT
trap 'exit 130' INT TERM
for ((restart = 0; restart <= most; restart++)); do
  log="$logs/run_$(date +%Y%m%d_%H%M%S)_$restart.log"
  set -m
  "$script" "$@" > >(tee "$log") 2>&1 &
  group=$!
  set +m
  began=$SECONDS
  while kill -0 "$group" 2>/dev/null && ((SECONDS - began < deadline)); do sleep 1; done
  if kill -0 "$group" 2>/dev/null; then
    echo "run $restart is not over after $deadline s: it is ended, and goes on" >&2
    end "$group"
    code=124
    wait "$group" 2>/dev/null || true
  else
    code=0
    wait "$group" || code=$?
  fi
  group=""
  [ "$code" -ne 0 ] || exit 0
  # Exit code 2 means wrong input, which another run would refuse again.
  [ "$code" -ne 2 ] || fail "run $restart ended with exit code 2; its words are above and in $log"
  echo "run $restart ended with exit code $code; its words are in $log" >&2
  ((restart == most)) || sleep "$pause"
done
fail "$((most + 1)) runs did not end well"
