#!/usr/bin/env bash
# [MODEL_SIZE=27b|4b] [ROUTER_PORT=30000] [NODES=4]: a fleet of sglang engines behind one address, on the nodes of a SLURM job. Outside of a job it submits one.
source "$(dirname "$(readlink -f "$0")")/../before.sh"
read_settings
stands_for "\`python -m scripts.serve_fleet\` (docs/cluster-eval.md)"
export NODES="${NODES:-4}" GPUS="${GPUS:-8}" ROUTER_PORT="${ROUTER_PORT:-30000}"
# MODEL_PATH, or the weights of a size: MODEL_4B, MODEL_27B and so on.
sized="MODEL_${MODEL_SIZE:-27b}" sized="${sized^^}"
export MODEL_PATH="${MODEL_PATH:-${!sized:-}}"
[ -d "$MODEL_PATH" ] || fail "${MODEL_PATH:-no weights}: no such folder; expected MODEL_PATH, or $sized in the environment or in .env.swe"
case "${MODEL_SIZE:-27b}" in *[0-9]b) size="${MODEL_SIZE:-27b}" ;; *) fail "MODEL_SIZE=$MODEL_SIZE; expected such as 27b or 4b" ;; esac
each=1
[ "${size%b}" -le 8 ] || each=2
[ "${size%b}" -le 32 ] || each=8
export TP="${TP:-$each}" ROUTER_HOST="${ROUTER_HOST:-0.0.0.0}" SWELAB_FLEET_KEY="${SWELAB_FLEET_KEY:-}"
if [ "$NODES" -gt 1 ] && [ -z "${SLURM_JOB_ID:-}" ]; then
  command -v sbatch >/dev/null || fail "no SLURM here (sbatch); expected a job, or deploy_sglang_cluster_4nodes.sh with HOSTS"
  exec sbatch --nodes="$NODES" --ntasks-per-node=1 ${GPUS:+--gpus-per-node="$GPUS"} --job-name=sglang-fleet \
    --output="sglang-fleet-%j.log" --wrap="$(printf '%q ' bash "$(readlink -f "$0")" "$@")"
fi
servers=1
[ "$GPUS" = 0 ] || servers=$((GPUS / TP))
"$python" -m scripts.serve_fleet --weights "$MODEL_PATH" --name "${SERVED_MODEL_NAME:-$(basename "$MODEL_PATH" | tr '[:upper:]' '[:lower:]')}" \
  --nodes "$NODES" --servers "${SERVERS:-$servers}" --gpus "$GPUS" --host "$ROUTER_HOST" --port "$ROUTER_PORT" \
  --api-key-env SWELAB_FLEET_KEY --sglang-args "${SGLANG_ARGS:-}" "$@"
