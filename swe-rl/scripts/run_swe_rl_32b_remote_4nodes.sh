#!/usr/bin/env bash
# [HF_CKPT=weights] [EXPORT_ROOT=folder] [OPTION...]: Qwen3-32B on 4 nodes, 2 to train and 2 to serve (configs/rl/swerl-32b-4nodes.yaml).
source "$(dirname "$(readlink -f "$0")")/../train.sh"
train swerl-32b-4nodes swe-rl-32b-remote-4nodes "${RUN_TIMESTAMP:-$(date +%Y-%m-%d_%H%M%S)}" "$@"
