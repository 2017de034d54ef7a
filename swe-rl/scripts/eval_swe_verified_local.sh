#!/usr/bin/env bash
# EVAL_MODEL_PATH=weights VERIFIED_DIR=folder of export_swebench_verified_assets.py: run_eval_swe.sh on verified_eval.jsonl.
source "$(dirname "$(readlink -f "$0")")/../before.sh"
check_words scripts.evaluate --model m --data d --output-dir o "$@"
read_settings
[ -n "${VERIFIED_DIR:-}" ] || fail "VERIFIED_DIR is not set; expected the folder with verified_eval.jsonl"
[ -r "$VERIFIED_DIR/verified_eval.jsonl" ] || fail "$VERIFIED_DIR/verified_eval.jsonl: no such file; data/export_swebench_verified_assets.py writes it"
export PROMPT_DATA="$VERIFIED_DIR/verified_eval.jsonl" IMAGE_CONVENTION=swe-bench
exec "$root/swe-rl/eval/run_eval_swe.sh" "$@"
