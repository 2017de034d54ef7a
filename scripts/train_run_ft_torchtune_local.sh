#!/usr/bin/env bash
# [CONFIG_PATH=file] [N_GPUS=1] [LEN_STATS_FILE=file] [MAX_SEQ_LEN=32768]: trains with a torchtune configuration on this machine, with SWE-smith's name and variables.
source "$(dirname "$(readlink -f "$0")")/as_before.sh"
no_words "$@"
stands_for "the rule train_sft: snakemake results/sft/<sft>/checkpoint.json, with configs/sft/<sft>.yaml"
exec "$python" -m scripts.run_torchtune --config "${CONFIG_PATH:-configs/train/full_ft_qwen_7b_local.yml}" \
  --gpus "${N_GPUS:-1}" --stats "${LEN_STATS_FILE:-}" --max-seq-len "${MAX_SEQ_LEN:-32768}"
