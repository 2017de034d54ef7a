#!/usr/bin/env bash
# Usage: [TRAIN=rows] [IMAGE_LIST=file] pull_swe_images.sh   Pulls the images of prompt rows or of a list into this host's engine. It does the same as `hosts/host.sh pull LIST [MIRROR]`,
# and works alone: a host with only this file needs bash, python3 and docker.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,${/^#/!q; s/^# //p}' "$0"; exit ;; esac
echo "$(basename "$0") stands for \`hosts/host.sh pull LIST [MIRROR]\`, or the rule pull_images (docs/images.md)" >&2
fail() { echo "error: $1" >&2; exit 2; }
[ $# = 0 ] || fail "$1: no option is known; expected the variables TRAIN, N, IMAGE_LIST, SRC_PREFIX, PROXY_PREFIX, MAX_RETRIES, RETRY_SLEEP"
command -v docker >/dev/null || fail "no such program: docker; expected a container engine"
TRAIN="${TRAIN:-$HOME/train.jsonl}" N="${N:-0}" IMAGE_LIST="${IMAGE_LIST:-}"
MAX_RETRIES="${MAX_RETRIES:-5}" RETRY_SLEEP="${RETRY_SLEEP:-15}" SRC_PREFIX="${SRC_PREFIX:-}" PROXY_PREFIX="${PROXY_PREFIX:-}"
for name in N MAX_RETRIES RETRY_SLEEP; do
  [[ ${!name} =~ ^(0|[1-9][0-9]{0,8})$ ]] || fail "$name=${!name}; expected a whole number"
done
[ "$MAX_RETRIES" -ge 1 ] || fail "MAX_RETRIES=0; expected 1 or more"
[ -z "$PROXY_PREFIX" ] || [ -n "$SRC_PREFIX" ] || fail "PROXY_PREFIX=$PROXY_PREFIX without SRC_PREFIX; expected what it stands for"

names() { # prints each image of the rows once, in the rows' order, by its own name or by the convention of its set
  if [ -n "$IMAGE_LIST" ]; then
    [[ -r $IMAGE_LIST && ! -d $IMAGE_LIST ]] || fail "$IMAGE_LIST: no such file; expected names of images, one a line"
    sed 's/#.*//; s/[[:space:]]//g; /^$/d' "$IMAGE_LIST"
    return
  fi
  [[ -r $TRAIN && ! -d $TRAIN ]] || fail "$TRAIN: no such file; expected TRAIN=<prompt rows> or IMAGE_LIST=<names>"
  python3 - "$TRAIN" <<'ROWS'
import json, sys
seen = {}
for number, line in enumerate(open(sys.argv[1], encoding="utf-8", errors="replace"), 1):
    if not line.strip():
        continue
    try:
        row = json.loads(line)
        told = row.get("metadata") or {}
        instance = told.get("instance") or row.get("instance") or row
        source = str(told.get("data_source", "")).lower()
        name = instance.get("image_name") or instance.get("image")
        if not name:
            owner, between = ("xingyaoww", "_s_") if "swe-gym" in source else ("swebench", "_1776_")
            name = f"docker.io/{owner}/sweb.eval.x86_64.{instance['instance_id'].replace('__', between).lower()}:latest"
    except (ValueError, KeyError, AttributeError) as error:
        print(f"error: {sys.argv[1]}, line {number}: no row of tasks ({type(error).__name__})", file=sys.stderr)
        sys.exit(2)
    seen[name] = None
print("\n".join(seen))
ROWS
}

allow() { # on a host that hosts/host.sh set up, adds the image to the allowed images
  local list="${SWELAB_SETTINGS:-/etc/swelab}/images"
  [ -e "$list" ] || return 0
  [ -w "$list" ] || fail "$list: cannot be written; expected root"
  grep -qxF -- "$1" "$list" || echo "$1" >>"$list"
}

got=0 had=0 failed=0
list="$(names)"
[ "$N" = 0 ] || list="$(head -n "$N" <<<"$list")"
while IFS= read -r name; do
  [ -n "$name" ] || continue
  [[ $name =~ ^[a-z0-9][A-Za-z0-9._:@/-]*$ ]] || fail "${IMAGE_LIST:-$TRAIN}: $name is no name of an image"
  if docker image inspect "$name" >/dev/null 2>&1; then had=$((had + 1)); allow "$name"; continue; fi
  from="$name"
  [ -z "$PROXY_PREFIX" ] || [ "${name#"$SRC_PREFIX"}" = "$name" ] || from="$PROXY_PREFIX${name#"$SRC_PREFIX"}"
  for attempt in $(seq "$MAX_RETRIES"); do
    if docker pull --quiet "$from" >/dev/null </dev/null; then
      [ "$from" = "$name" ] || docker tag "$from" "$name"
      got=$((got + 1))
      allow "$name"
      continue 2
    fi
    [ "$attempt" = "$MAX_RETRIES" ] || sleep "$RETRY_SLEEP"
  done
  echo "not pulled in $MAX_RETRIES attempts: $from" >&2
  failed=$((failed + 1))
done <<<"$list"
echo "$got pulled, $had were there, $failed could not be had"
[ "$failed" = 0 ] || exit 2
