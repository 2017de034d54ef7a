#!/usr/bin/env bash
# [HF_CKPT=weights] [EXPORT_ROOT=folder] [OPTION...]: trains Qwen3-32B on 8 nodes, 4 for training and 4 for serving (configs/rl/swerl-32b-8nodes.yaml).
source "$(dirname "$(readlink -f "$0")")/../train.sh"
train swerl-32b-8nodes swe-rl-32b-remote-8nodes "${RUN_TIMESTAMP:-$(date +%Y-%m-%d_%H%M%S)}" "$@"
