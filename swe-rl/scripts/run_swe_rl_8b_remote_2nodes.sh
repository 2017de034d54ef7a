#!/usr/bin/env bash
# [HF_CKPT=weights] [EXPORT_ROOT=folder] [OPTION...]: trains Qwen3-8B on 2 nodes, 1 for training and 1 for serving (configs/rl/swerl-8b-2nodes.yaml).
source "$(dirname "$(readlink -f "$0")")/../train.sh"
train swerl-8b-2nodes swe-rl-8b-remote-2nodes "${RUN_TIMESTAMP:-$(date +%Y-%m-%d_%H%M%S)}" "$@"
