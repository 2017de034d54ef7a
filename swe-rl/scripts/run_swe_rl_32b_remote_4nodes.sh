#!/usr/bin/env bash
# [HF_CKPT=weights] [EXPORT_ROOT=folder] [OPTION...]: trains Qwen3-32B on 4 nodes, 2 for training and 2 for serving (configs/rl/swerl-32b-4nodes.yaml).
source "$(dirname "$(readlink -f "$0")")/../train.sh"
train swerl-32b-4nodes swe-rl-32b-remote-4nodes "${RUN_TIMESTAMP:-$(date +%Y-%m-%d_%H%M%S)}" "$@"
