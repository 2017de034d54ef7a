#!/usr/bin/env bash
# [SWE_PDB_MODEL_PATH=weights] [SWE_PDB_CHECKPOINT_BASE=folder] [CUDA_VISIBLE_DEVICES=...] [KEY=VALUE...]: Qwen3-8B with the debugger on 4 GPUs (configs/rl/swepdb-8b.yaml).
source "$(dirname "$(readlink -f "$0")")/train.sh"
swepdb swepdb-8b swepdb-rl swepdb-qwen3-8b-1224-pure rollout/PROJECT/EXPERIMENT "$@"
