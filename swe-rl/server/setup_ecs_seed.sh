#!/usr/bin/env bash
# Usage: [TRAIN=~/train.jsonl] [IMAGE_LIST=file] setup_ecs_seed.sh   Turns this machine into a container host: starts the service on port 5000, then pulls the images of TRAIN or IMAGE_LIST. Run it from a clone, as root.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,${/^#/!q; s/^# //p}' "$0"; exit ;; esac
here="$(cd "$(dirname "$(readlink -f "$0")")" && pwd)"
host="$here/../../hosts/host.sh"
echo "$(basename "$0") stands for \`hosts/host.sh setup exec-server\` and \`pull\` (docs/pool.md)" >&2
[ $# = 0 ] || { echo "error: $1: no option is known; expected the variables TRAIN, N, IMAGE_LIST" >&2; exit 2; }
[ -x "$host" ] || { echo "error: $host: no such file; expected this script in a clone of the repository, which the host needs whole" >&2; exit 2; }
for list in "${TRAIN:-}" "${IMAGE_LIST:-}"; do
  [ -z "$list" ] || [ -r "$list" ] || { echo "error: $list: no such file; expected TRAIN=<prompt rows> or IMAGE_LIST=<names>" >&2; exit 2; }
done
"$host" setup exec-server
if [ -n "${IMAGE_LIST:-}" ] || [ -r "${TRAIN:-$HOME/train.jsonl}" ]; then
  "$here/../data/pull_swe_images.sh"
else
  echo "no images pulled: neither IMAGE_LIST nor ${TRAIN:-$HOME/train.jsonl} is there" >&2
fi
"$host" verify
