# Sourced by the scripts with the names of SWE-smith and SWE-RL: finds the Python of this clone, and prints the help of a script.
# shellcheck shell=bash
set -euo pipefail
root="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
python="${PYTHON_BIN:-$root/.venv/bin/python}"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

# --help prints the first comment of the script, then the options of the program that `options_of` names.
case " $* " in *" --help "* | *" -h "*)
  printf 'Usage: %s ' "${0##*/}"
  sed -n '2,${/^#/!q; s/^# //p}' "$0"
  [ -z "${options_of:-}" ] || "$python" "$root/$options_of" --help
  exit
  ;;
esac

fail() {
  echo "error: $1" >&2
  exit 2
}

# no_words WORD...: ends with an error if a script that only takes variables got arguments.
no_words() {
  [ $# = 0 ] || fail "$1: no option is known; expected variables alone (--help names them)"
}

require_python() {
  command -v "$python" >/dev/null || fail "no such program: $python; expected \`make setup\`, or PYTHON_BIN"
}

# check_words MODULE WORD...: ends with an error if the program MODULE refuses these arguments. Nothing else runs.
check_words() {
  require_python
  "$python" - "$@" <<'CODE' || exit 2
import argparse
import runpy
import sys

parse = argparse.ArgumentParser.parse_args
argparse.ArgumentParser.parse_args = lambda *given: sys.exit(0 if parse(*given) else 0)
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
CODE
}

stands_for() {
  echo "$(basename "$0") stands for $1" >&2
  require_python
}
