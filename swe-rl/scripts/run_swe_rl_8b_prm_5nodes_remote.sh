#!/usr/bin/env bash
# [HF_CKPT=weights] [--prm-model-path FOLDER] [--prm-m 3] [--prm-num-gpus 8] [--prm-step-coef 1.0] [OPTION...]: trains Qwen3-8B on 5 nodes; Qwen3-4B judges its steps (configs/rl/swerl-8b-prm-5nodes.yaml).
source "$(dirname "$(readlink -f "$0")")/../train.sh"
train swerl-8b-prm-5nodes swe-rl-8b-prm-5nodes-remote "${RUN_TIMESTAMP:-$(date +%Y-%m-%d_%H%M%S)}" "$@"
