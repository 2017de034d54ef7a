# Sourced by the scripts that have SWE-RL's names: finds the clone and its Python, reads .env.swe, says what a script stands for.
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

# NAME=VALUE lines of .env.swe; what the user exported wins. Nothing in the file is run.
read_settings() {
  local file="${ENV_SWE:-$root/swe-rl/.env.swe}" line name value
  [ -r "$file" ] || return 0
  while IFS= read -r line || [ -n "$line" ]; do
    line="${line#export }"
    [[ $line =~ ^[[:space:]]*(#.*)?$ ]] && continue
    [[ $line =~ ^([A-Za-z_][A-Za-z0-9_]*)=(.*)$ ]] || fail "$file: '$line'; expected NAME=VALUE"
    name="${BASH_REMATCH[1]}" value="${BASH_REMATCH[2]}"
    [[ $value =~ ^\"(.*)\"$ || $value =~ ^\'(.*)\'$ ]] && value="${BASH_REMATCH[1]}"
    [ -n "${!name+set}" ] || export "$name=$value"
  done <"$file"
}

# SWE_ENV_SERVER_URL, or a pool server over the addresses of SWE_EXEC_SERVER_URLS for as long as the script runs.
# Without either, sandboxes are those of this machine (SWELAB_BACKEND).
open_pool() {
  if [ -n "${SWE_ENV_SERVER_URL:-}" ]; then
    export SWELAB_BACKEND=remote SWELAB_POOL="$SWE_ENV_SERVER_URL"
  elif [ -n "${SWE_EXEC_SERVER_URLS:-}" ]; then
    local port="${SWE_ENV_SERVER_PORT:-18090}"
    "$root/swe-rl/server/swe_env_pool_server.py" --host 127.0.0.1 --port "$port" &
    pool_process=$!
    trap 'kill "$pool_process" 2>/dev/null || true' EXIT
    export SWELAB_BACKEND=remote SWELAB_POOL="http://127.0.0.1:$port"
    for _ in $(seq 60); do
      kill -0 "$pool_process" 2>/dev/null || fail "the pool server has ended; its words are above"
      (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
      sleep 1
    done
    fail "the pool server does not listen on port $port after 60 s"
  fi
}
