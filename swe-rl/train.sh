# Sourced by the training scripts with SWE-RL's and Miles' names: runs the rule train_rl on a recipe, with the scripts' variables.
# shellcheck shell=bash
options_of="${options_of:-swe-rl/rl_recipe.py}"
export STANDS_FOR="$0"
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/before.sh"

# Makes a link with the old name to the rule's output, and the folder of the link.
stands_at() {
  local link="${1%/}"
  [ ! -e "$link" ] || [ -L "$link" ] || fail "$link: is there already; expected a path at which a link can be made"
  { mkdir -p "$(dirname "$link")" && ln -sfn "$2" "$link"; } 2>/dev/null ||
    fail "$link: cannot be made; expected ${links:-EXPORT_ROOT, SAVE_CKPT and SWE_SAVE_TRAJ_DIR} where this user may write"
}

# train RECIPE OLD_NAME ENDING [OPTION...]: the names of the output folders are the old name followed by ENDING.
train() {
  local shipped="$1" old="$2" ending="$3" recipe given=() asked=() export_root
  shift 3
  read_settings
  [ "${MLP_ROLE_INDEX:-0}" = 0 ] ||
    fail "MLP_ROLE_INDEX=$MLP_ROLE_INDEX: a job of N nodes is asked for by one call; expected it on one machine alone (docs/rl-scale.md)"
  [ -z "${WANDB_KEY:-}" ] || export WANDB_API_KEY="${WANDB_API_KEY:-$WANDB_KEY}"
  while [ $# -gt 0 ]; do
    case "$1" in
    --save | --save=*)
      [ "$1" != --save ] || { set -- "--save=${2:-}" "${@:3}"; }
      SAVE_CKPT="${1#*=}"
      [ -n "$SAVE_CKPT" ] || fail "--save is empty; expected a path at which a link can be made"
      shift
      ;;
    *)
      asked+=("$1")
      shift
      ;;
    esac
  done
  stands_for "rule \`train_rl\`, \`snakemake results/rl/$shipped/checkpoint.json\` (docs/rl-scale.md)"
  export SWE_MAX_CONTAINERS_PER_NODE="${SWE_MAX_CONTAINERS_PER_NODE:-15}"
  counts 1 SWE_MAX_CONTAINERS_PER_NODE SWE_ENV_SERVER_PORT
  if command -v sbatch >/dev/null; then
    [ -n "${SWE_ENV_SERVER_URL:-}" ] || [ -z "${SWE_EXEC_SERVER_URLS:-}" ] ||
      fail "SWE_EXEC_SERVER_URLS is set, but nodes reach no pool server of this script; expected one of your own in SWE_ENV_SERVER_URL (docs/pool.md)"
    given=(--profile slurm)
  else
    given=(--cores all)
  fi
  recipe="$("$python" "$root/swe-rl/rl_recipe.py" --recipe "$shipped" "${asked[@]}")"
  [ "$recipe" = "$shipped" ] || echo "the options are kept in configs/rl/$recipe.yaml" >&2
  export_root="${EXPORT_ROOT:-$root/swe-rl/output}"
  stands_at "${SAVE_CKPT:-$export_root/ckpt/${old}_$ending}" "$root/results/rl/$recipe/checkpoint"
  stands_at "${SWE_SAVE_TRAJ_DIR:-$export_root/swe_rollouts/${old}_${RUN_TIMESTAMP:-$(date +%Y-%m-%d_%H%M%S)}}" "$root/results/rl/$recipe/rollouts"
  open_pool
  [ -z "${SWELAB_BACKEND:-}" ] || given+=(--config "backend=$SWELAB_BACKEND")
  cd "$root"
  "$python" -m snakemake "results/rl/$recipe/checkpoint.json" "${given[@]}"
}
