# Sourced by the scripts that have the names of SWE-smith and SWE-RL: finds the Python of this clone, and says what a script stands for.
# shellcheck shell=bash
set -euo pipefail
root="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
python="${PYTHON_BIN:-$root/.venv/bin/python}"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

fail() {
  echo "error: $1" >&2
  exit 2
}

stands_for() {
  echo "$(basename "$0") stands for $1" >&2
  command -v "$python" >/dev/null || fail "no such program: $python; expected \`make setup\`, or PYTHON_BIN"
}
