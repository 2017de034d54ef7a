# Sourced by the training scripts with SWE-PDB's names: runs the rule train_rl on a recipe, with the scripts' variables.
# shellcheck shell=bash
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
options_of=swe-pdb/rl_recipe.py links="SWE_PDB_CHECKPOINT_BASE, ROLLOUT_DATA_DIR and VALIDATION_DATA_DIR"
source "$here/../swe-rl/train.sh"

# A list with another number of GPUs than the recipe's is refused, because verl would wait for the missing ones.
check_gpus() {
  local recipe="$1" listed wanted
  [ -n "${CUDA_VISIBLE_DEVICES:-}" ] || return 0
  listed="$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)"
  wanted="$("$python" "$here/rl_recipe.py" --recipe "$recipe" --configs "$configs" --gpus)"
  [ "$listed" -eq "$wanted" ] ||
    fail "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES names $listed GPUs; expected $wanted, or trainer.n_gpus_per_node=$listed"
}

# A folder name with the project's and the experiment's names in it.
named() {
  local text="${1//PROJECT/$project}"
  echo "${text//EXPERIMENT/$experiment}"
}

# swepdb RECIPE PROJECT EXPERIMENT ROLLOUTS [KEY=VALUE...]: ROLLOUTS is the folder of the rollouts' link, below train_trajectories/.
swepdb() {
  local shipped="$1" project="${PROJECT_NAME:-$2}" experiment="${EXPERIMENT_NAME:-$3}" rollouts="$4" validation word recipe base given=()
  shift 4
  for word in "$@"; do
    case "${word##+}" in
      trainer.project_name=?*) project="${word#*=}" ;;
      trainer.experiment_name=?*) experiment="${word#*=}" ;;
      trainer.default_local_dir=?*) CHECKPOINT_DIR="${word#*=}" ;;
      trainer.rollout_data_dir=?*) ROLLOUT_DATA_DIR="${word#*=}" ;;
      trainer.validation_data_dir=?*) VALIDATION_DATA_DIR="${word#*=}" ;;
    esac
  done
  validation="$(named "${rollouts/rollout/val}")"
  rollouts="$(named "$rollouts")"
  configs="${SWE_PDB_CONFIGS:-$root/configs}"
  stands_for "rule \`train_rl\`, \`snakemake results/rl/$shipped/checkpoint.json\` (docs/rl-scale.md)"
  recipe="$("$python" "$here/rl_recipe.py" --recipe "$shipped" --configs "$configs" "$@")"
  [ "$recipe" = "$shipped" ] || echo "what was changed is kept in configs/rl/$recipe.yaml" >&2
  check_gpus "$recipe"
  base="${SWE_PDB_CHECKPOINT_BASE:-$root/swe-pdb/data/checkpoints}"
  stands_at "${CHECKPOINT_DIR:-$base/$project/$experiment}" "$root/results/rl/$recipe/checkpoint"
  stands_at "${ROLLOUT_DATA_DIR:-$root/swe-pdb/train_trajectories/$rollouts}" "$root/results/rl/$recipe/rollouts"
  validation="${VALIDATION_DATA_DIR:-$root/swe-pdb/train_trajectories/$validation}"
  stands_at "$validation/validation.jsonl" "$root/results/rl/$recipe/validation.jsonl"
  if command -v sbatch >/dev/null; then given=(--profile slurm); else given=(--cores all); fi
  [ -z "${SWELAB_BACKEND:-}" ] || given+=(--config "backend=$SWELAB_BACKEND")
  cd "$root"
  "$python" -m snakemake "results/rl/$recipe/checkpoint.json" "${given[@]}"
}
