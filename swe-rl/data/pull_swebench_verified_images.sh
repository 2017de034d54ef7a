#!/usr/bin/env bash
# Usage: IMAGE_LIST=docker_images.txt [SRC_PREFIX=docker.io/swebench PROXY_PREFIX=mirror/swebench] pull_swebench_verified_images.sh   Does the same as pull_swe_images.sh with a list.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,${/^#/!q; s/^# //p}' "$0"; exit ;; esac
export IMAGE_LIST="${IMAGE_LIST:-$HOME/swe_verified/docker_images.txt}"
pull="$(dirname "$(readlink -f "$0")")/pull_swe_images.sh"
[ -r "$pull" ] || { echo "error: pull_swe_images.sh is not beside $0; expected both" >&2; exit 2; }
exec bash "$pull" "$@"
