# Sourced by the scripts that have SWE-smith's names: finds the Python of this clone, says which rule a script stands for.
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
  echo "$(basename "$0") stands for the rule $1: $2" >&2
  command -v "$python" >/dev/null || fail "no such program: $python; expected \`make\`, or PYTHON_BIN"
}
