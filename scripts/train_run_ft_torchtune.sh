#!/usr/bin/env bash
# [CONFIG_PATH=file] [N_GPUS=2] [MODAL_VOLUME=swelab]: trains with a torchtune configuration on GPUs at Modal, with SWE-smith's name and variables. Paths in the configuration are paths in the volume, at /volume.
source "$(dirname "$(readlink -f "$0")")/as_before.sh"
no_words "$@"
stands_for "the rule train_on_modal: snakemake results/modal/<sft>/checkpoint.json, with configs/sft/<sft>.yaml (docs/modal.md)"
exec "$python" -m scripts.train_on_modal --config "${CONFIG_PATH:-configs/train/full_ft_qwen_7b_local.yml}" \
  --gpus "${N_GPUS:-2}" --volume "${MODAL_VOLUME:-swelab}"
