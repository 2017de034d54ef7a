#!/usr/bin/env bash
# [SWE_PDB_MODEL_PATH=weights] [SWE_PDB_CHECKPOINT_BASE=folder] [CUDA_VISIBLE_DEVICES=...] [KEY=VALUE...]: Qwen3-14B without the debugger on 8 GPUs (configs/rl/swepdb-14b-rewrite.yaml).
source "$(dirname "$(readlink -f "$0")")/train.sh"
swepdb swepdb-14b-rewrite swepdb-ablation rewrite-qwen3-14b PROJECT/EXPERIMENT/rollout "$@"
