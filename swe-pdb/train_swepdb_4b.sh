#!/usr/bin/env bash
# [SWE_PDB_MODEL_PATH=weights] [SWE_PDB_CHECKPOINT_BASE=folder] [CUDA_VISIBLE_DEVICES=...] [KEY=VALUE...]: Qwen3-4B with the debugger on 4 GPUs (configs/rl/swepdb-4b.yaml).
source "$(dirname "$(readlink -f "$0")")/train.sh"
swepdb swepdb-4b swepdb-rl swepdb-qwen3-4b-0115 rollout/PROJECT/EXPERIMENT "$@"
