#!/usr/bin/env bash
# [HF_CKPT=weights] [PROMPT_DATA=rows] [OPTION...]: Miles' SWE-agent example, Qwen3-4B-Instruct-2507 on 4 GPUs (configs/rl/miles-4b.yaml). Nothing is killed before.
source "$(dirname "$(readlink -f "$0")")/../../../swe-rl/train.sh"
export SAVE_CKPT="${SAVE_CKPT:-${EXPORT_ROOT:-$root/swe-rl/output}/qwen3-4B-Instruct-2507_miles}"
train miles-4b swe-agent-qwen3-4b "${RUN_TIMESTAMP:-$(date +%Y-%m-%d_%H%M%S)}" "$@"
