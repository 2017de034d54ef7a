# Sourced by the scripts with SWE-RL's names: reads .env.swe, and starts a pool server if one is requested.
# shellcheck shell=bash
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../scripts/as_before.sh"

# read_settings [NAME/OTHER...]: reads NAME=VALUE lines of .env.swe. Exported variables take precedence. No line is executed.
# The file's NAME is ignored if the user exported OTHER, which is used instead.
read_settings() {
  local file="${ENV_SWE:-$root/swe-rl/.env.swe}" line name value pair passed=" "
  for pair in "$@" SWE_ENV_SERVER_URL/SWE_EXEC_SERVER_URLS EVAL_MODEL_PATH/HF_CKPT MAX_CONCURRENT/SWE_MAX_CONCURRENT; do
    name="${pair#*/}"
    [ -z "${!name:-}" ] || passed+="${pair%/*} "
  done
  [ -z "${ENV_SWE:-}" ] || [ -r "$file" ] || fail "ENV_SWE=$file: no such file; expected NAME=VALUE lines"
  [ -r "$file" ] || return 0
  while IFS= read -r line || [ -n "$line" ]; do
    line="$(trimmed "$line")"
    line="${line#export }"
    [[ $line =~ ^(#.*)?$ ]] && continue
    [[ $line =~ ^([A-Za-z_][A-Za-z0-9_]*)=(.*)$ ]] || fail "$file: '$line'; expected NAME=VALUE"
    name="${BASH_REMATCH[1]}" value="${BASH_REMATCH[2]}"
    if [[ $value =~ ^\"(.*)\"([[:space:]]+#[^\"]*)?$ || $value =~ ^\'(.*)\'([[:space:]]+#[^\']*)?$ ]]; then
      value="${BASH_REMATCH[1]}"
    else
      value="$(trimmed "${value%%[[:space:]]#*}")"
      [[ $value != "~/"* ]] || value="$HOME/${value#"~/"}"
    fi
    [[ -n ${!name+set} || $passed = *" $name "* ]] || export "$name=$value"
  done <"$file"
  python="${PYTHON_BIN:-$root/.venv/bin/python}"
}

# Prints a text without surrounding white space, such as line ends from Windows.
trimmed() {
  local text="${1#"${1%%[![:space:]]*}"}"
  printf %s "${text%"${text##*[![:space:]]}"}"
}

# counts LEAST NAME...: ends with an error if one of these variables is set to anything but a whole number of at least LEAST.
counts() {
  local name least="$1"
  shift
  for name in "$@"; do
    [[ -z ${!name:-} || ( ${!name} =~ ^(0|[1-9][0-9]{0,8})$ && ${!name} -ge $least ) ]] ||
      fail "$name=${!name}; expected a whole number of at least $least"
  done
}

# Uses SWE_ENV_SERVER_URL, or runs a pool server for the addresses in SWE_EXEC_SERVER_URLS during the script.
# Without either, sandboxes run on this machine (SWELAB_BACKEND).
open_pool() {
  counts 1 SWE_ENV_SERVER_PORT SWE_MAX_CONTAINERS_PER_NODE
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
