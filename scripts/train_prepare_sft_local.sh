#!/usr/bin/env bash
# <trajectories> <reports> [style]: makes training rows of resolved trajectories, with SWE-smith's name and variables.
source "$(dirname "$(readlink -f "$0")")/as_before.sh"
stands_for "the rule build_sft_dataset: snakemake results/sft/<sft>/dataset.jsonl, with a policy of kind recorded (docs/sft-data.md)"
[[ $# -ge 2 && $# -le 3 && "$1$2" != -* ]] || fail "$(basename "$0")${*:+ $*}: expected <traj_dir> <eval_dir> [xml|ticks|tool]"
out="${OUT_DIR:-trajectories_sft}" style="${3:-xml}"
"$python" -m scripts.collect_trajs --traj_dir "$1" --eval_dir "$2" --style "$style" --out_dir "$out"
if [ -n "${STATS_FILE:-}" ]; then
  "$python" -m scripts.validate_len_stats --stats_file "$STATS_FILE" --max_seq_len "${MAX_SEQ_LEN:-32768}" \
    --data_file "$out/$(basename "$2").$style.jsonl"
else
  echo "STATS_FILE is not set: lengths are not checked" >&2
fi
