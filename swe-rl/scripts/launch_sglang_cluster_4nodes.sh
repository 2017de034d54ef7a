#!/usr/bin/env bash
# [MODEL_SIZE=27b|4b] [ROUTER_PORT=30000] [NODES=4]: starts sglang engines behind one address, on the nodes of a SLURM job. Outside of a job it submits one.
source "$(dirname "$(readlink -f "$0")")/../before.sh"
check_words scripts.serve_fleet --weights w "$@"
exported=" $(compgen -e MODEL_ | tr '\n' ' ' || true)"
read_settings
stands_for "\`python -m scripts.serve_fleet\` (docs/cluster-eval.md)"
export NODES="${NODES:-4}" GPUS="${GPUS:-8}" ROUTER_PORT="${ROUTER_PORT:-30000}" MODEL_SIZE="${MODEL_SIZE:-27b}"
counts 1 NODES ROUTER_PORT TP SERVERS
counts 0 GPUS
[[ $MODEL_SIZE =~ ^(0|[1-9][0-9]{0,3})(\.[0-9]+)?b$ ]] || fail "MODEL_SIZE=$MODEL_SIZE; expected such as 27b or 4b"
# Uses MODEL_PATH, or the weights of a size: MODEL_4B, MODEL_27B and so on.
sized="MODEL_${MODEL_SIZE^^}" sized="${sized//./_}" size="${MODEL_SIZE%b}" size="${size%.*}" each=1
[[ $exported = *" MODEL_PATH "* || ($exported != *" MODEL_SIZE "* && $exported != *" $sized "*) ]] || MODEL_PATH="${!sized:-${MODEL_PATH:-}}"
export MODEL_PATH="${MODEL_PATH:-${!sized:-}}"
[ -d "$MODEL_PATH" ] || fail "${MODEL_PATH:-no weights}: no such folder; expected MODEL_PATH, or $sized in the environment or in .env.swe"
[ "$size" -le 8 ] || each=2
[ "$size" -le 32 ] || each=8
export TP="${TP:-$each}" ROUTER_HOST="${ROUTER_HOST:-0.0.0.0}" SWELAB_FLEET_KEY="${SWELAB_FLEET_KEY:-}"
[[ $GPUS = 0 || $TP -le $GPUS ]] || fail "TP=$TP with GPUS=$GPUS; expected a server that fits a node"
if [ "$NODES" -gt 1 ] && [ -z "${SLURM_JOB_ID:-}" ]; then
  command -v sbatch >/dev/null || fail "no SLURM here (sbatch); expected a job, or deploy_sglang_cluster_4nodes.sh with HOSTS"
  # Requests whole nodes; otherwise a task gets one CPU and little memory.
  read -ra given <<<"${SBATCH_OPTIONS---exclusive --mem=0}"
  [ "$GPUS" = 0 ] || given+=(--gpus-per-node="$GPUS")
  exec sbatch --nodes="$NODES" --ntasks-per-node=1 "${given[@]}" --job-name=sglang-fleet \
    --output="sglang-fleet-%j.log" --wrap="$(printf '%q ' bash "$(readlink -f "$0")" "$@")"
fi
servers=1
[ "$GPUS" = 0 ] || servers=$((GPUS / TP))
"$python" -m scripts.serve_fleet --weights "$MODEL_PATH" --name "${SERVED_MODEL_NAME:-$(basename "$MODEL_PATH" | tr '[:upper:]' '[:lower:]')}" \
  --nodes "$NODES" --servers "${SERVERS:-$servers}" --gpus "$GPUS" --host "$ROUTER_HOST" --port "$ROUTER_PORT" \
  --api-key-env SWELAB_FLEET_KEY --sglang-args "${SGLANG_ARGS:-}" "$@"
