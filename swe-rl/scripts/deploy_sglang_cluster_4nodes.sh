#!/usr/bin/env bash
# HOSTS="a b c d" MODEL_PATH=weights [ENGINE_PORT=30001] [ROUTER_PORT=30000]: starts a server on each host by ssh, and one address for all on this machine. All hosts must see this clone and the weights.
source "$(dirname "$(readlink -f "$0")")/../before.sh"
check_words scripts.serve_fleet --weights w --behind u "$@"
read_settings
stands_for "\`python -m scripts.serve\` on each host, and \`python -m scripts.serve_fleet --behind\` here (docs/cluster-eval.md)"
[ -n "${HOSTS:-}" ] || fail "HOSTS is not set; expected names of hosts, or host:port"
[ -d "${MODEL_PATH:-}" ] || fail "${MODEL_PATH:-MODEL_PATH}: no such folder; expected weights that every host sees"
counts 1 TP ENGINE_PORT ROUTER_PORT START_SECONDS
name="${SERVED_MODEL_NAME:-$(basename "$MODEL_PATH" | tr '[:upper:]' '[:lower:]')}"
SWELAB_FLEET_KEY="${SWELAB_FLEET_KEY:-$("$python" -c 'import secrets; print(secrets.token_urlsafe(32))')}"
export SWELAB_FLEET_KEY
urls=() started=() logs="${LOGS:-$root/swe-rl/output/fleet}"
mkdir -p "$logs"
trap 'for each in "${started[@]}"; do kill "$each" 2>/dev/null || true; done; wait' EXIT
trap 'exit 130' INT TERM
for entry in $HOSTS; do
  host="${entry%%:*}" port="${entry#"$host"}" port="${port#:}"
  port="${port:-${ENGINE_PORT:-30001}}"
  [[ $host =~ ^[A-Za-z0-9][A-Za-z0-9.-]*$ && $port =~ ^[0-9]+$ ]] || fail "HOSTS: $entry is no host, or host:port"
  serve=("$python" -m scripts.serve --weights "$MODEL_PATH" --name "$name" --tp "${TP:-1}" --host "$host" --port "$port"
    --api-key-env SWELAB_FLEET_KEY --token "$logs/$host-$port.token" --log "$logs/$host-$port.log" --sglang-args "${SGLANG_ARGS:-}")
  # The token goes through standard input, not the command line. When standard input closes, the server ends.
  far="exec 3<&0; read -r SWELAB_FLEET_KEY; export SWELAB_FLEET_KEY PYTHONPATH=$(printf %q "$root"); cd $(printf %q "$root")
$(printf '%q ' "${serve[@]}") & own=\$!
{ while read -r _; do :; done; kill \$own 2>/dev/null; } <&3 & watch=\$!
wait \$own; kill \$watch 2>/dev/null"
  exec {line}> >(exec ${SSH:-ssh -o BatchMode=yes} "$host" "$far" >"$logs/$host-$port.out" 2>&1)
  started+=($!)
  echo "$SWELAB_FLEET_KEY" >&"$line"
  urls+=("http://$host:$port")
done
for number in "${!urls[@]}"; do
  for _ in $(seq "${START_SECONDS:-1800}"); do
    kill -0 "${started[$number]}" 2>/dev/null || fail "the server at ${urls[$number]} has ended; see $logs"
    code="$(printf 'header = "Authorization: Bearer %s"\n' "$SWELAB_FLEET_KEY" | curl --noproxy '*' -s -o /dev/null -w '%{http_code}' --max-time 20 --config - "${urls[$number]}/health" || true)"
    [ "$code" != 200 ] || continue 2
    sleep 1
  done
  fail "the server at ${urls[$number]} is not up; see $logs"
done
"$python" -m scripts.serve_fleet --weights "$MODEL_PATH" --name "$name" --behind "${urls[@]}" --api-key-env SWELAB_FLEET_KEY \
  --host "${ROUTER_HOST:-0.0.0.0}" --port "${ROUTER_PORT:-30000}" "$@" &
started+=($!)
wait "$!"
