#!/usr/bin/env bash
# [HF_CKPT=weights] [EXPORT_ROOT=folder] [OPTION...]: like run_swe_rl_32b_remote_8nodes.sh, with a fixed name of its checkpoint. Both resume; REF_LOAD, a converted checkpoint, is not needed.
source "$(dirname "$(readlink -f "$0")")/../train.sh"
[ -z "${REF_LOAD:-}" ] || echo "REF_LOAD is not read: Megatron reads the weights of HF_CKPT as they are" >&2
train swerl-32b-8nodes-resume swe-rl-32b-remote-8nodes fixed "$@"
