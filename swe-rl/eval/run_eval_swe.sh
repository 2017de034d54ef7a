#!/usr/bin/env bash
# EVAL_MODEL_PATH=weights PROMPT_DATA=rows.jsonl OUTPUT_DIR=folder: serves the weights, starts the pool, evaluates. Options go to scripts.evaluate.
source "$(dirname "$(readlink -f "$0")")/../before.sh"
check_words scripts.evaluate --model m --data d --output-dir o "$@"
read_settings
stands_for "\`python -m scripts.evaluate\` (docs/evaluate.md), with a pool server over SWE_EXEC_SERVER_URLS (docs/pool.md)"
counts 1 MAX_CONCURRENT SWE_MAX_CONCURRENT MAX_TOKENS STEP_LIMIT MAX_INSTANCES TP
model="${EVAL_MODEL_PATH:-${HF_CKPT:-}}" data="${PROMPT_DATA:-}"
[ -n "$model" ] || fail "EVAL_MODEL_PATH is not set; expected a folder of weights"
[ -n "$data" ] || fail "PROMPT_DATA is not set; expected task rows"
out="${OUTPUT_DIR:-${EXPORT_ROOT:-$root/swe-rl/output}/eval_runs/$(date +%Y-%m-%d_%H%M%S)}"
open_pool
given=(--scaffold "$root/configs/scaffolds/swe-rl.yaml" --model "$model" --data "$data" --output-dir "$out" --repos-dir "$root/results/repos")
given+=(--max-concurrent "${MAX_CONCURRENT:-${SWE_MAX_CONCURRENT:-8}}" --max-tokens "${MAX_TOKENS:-8192}")
given+=(--step-limit "${STEP_LIMIT:-20}" --temperature "${TEMPERATURE:-0}" --image-convention "${IMAGE_CONVENTION:-swe-gym}")
[ -z "${MAX_INSTANCES:-}" ] || given+=(--max-instances "$MAX_INSTANCES")
[ -z "${API_BASE:-}" ] || given+=(--api-base "$API_BASE")
[ -z "${TP:-}" ] || given+=(--tp "$TP")
"$python" -m scripts.evaluate "${given[@]}" "$@"
