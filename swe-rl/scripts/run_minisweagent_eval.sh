#!/usr/bin/env bash
# --sglang-url URL [--workers N] [--slice A:B] [--data ROWS] [--output FOLDER] [--model NAME] ...: runs the program mini-swe-agent on a benchmark, then grades its patches.
source "$(dirname "$(readlink -f "$0")")/../before.sh"
read_settings PROMPT_DATA/VERIFIED_DIR
stands_for "\`python -m scripts.run_mini_swe_agent\`, then \`python -m scripts.run_evaluation\` (docs/cluster-eval.md)"
url="${SGLANG_URL:-}" workers="${WORKERS:-1}" slice="" output="" grade=1
data="${PROMPT_DATA:-${VERIFIED_DIR:+$VERIFIED_DIR/verified_eval.jsonl}}" further=() places=()
while [ $# -gt 0 ]; do
  [[ $1 = --* ]] || fail "$1: no option; expected --sglang-url URL, and --help for the others"
  [ "$1" = --no-grade ] || [ $# -gt 1 ] || fail "$1: its value is missing"
  case "$1" in
    --sglang-url) url="$2"; shift 2 ;;
    --workers) workers="$2"; shift 2 ;;
    --slice) slice="$2"; shift 2 ;;
    --data) data="$2"; shift 2 ;;
    --output) output="$2"; shift 2 ;;
    --images | --repos-dir) places+=("$1" "$2"); shift 2 ;;
    --no-grade) grade=""; shift ;;
    *) further+=("$1" "$2"); shift 2 ;;
  esac
done
[ -n "$url" ] || fail "--sglang-url is missing; expected the server's address"
[[ $url =~ ^https?://[^/] ]] || fail "--sglang-url $url; expected an address such as http://host:30000"
[[ $workers =~ ^[1-9][0-9]{0,8}$ ]] || fail "--workers $workers; expected a whole number of at least 1"
[ -n "$data" ] || fail "no tasks; expected --data, PROMPT_DATA or VERIFIED_DIR"
output="${output:-${EXPORT_ROOT:-$root/swe-rl/output}/minisweagent/$(basename "${data%.*}")${slice:+.${slice//:/-}}}"
own="$root/.venv-mini-swe-agent/bin/python"
[[ " ${further[*]-} " == *" --python "* || ! -x $own ]] || further+=(--python "$own")
"$python" -m scripts.run_mini_swe_agent --sglang-url "$url" --data "$data" --output "$output" --workers "$workers" \
  ${slice:+--slice "$slice"} "${places[@]}" "${further[@]}"
[ -z "$grade" ] || "$python" -m scripts.run_evaluation --dataset_path "$data" --predictions_path "$output/preds.json" \
  --run_id "$(basename "$output")" --logs "$(dirname "$output")/graded" "${places[@]}"
