#!/bin/sh
# Usage: add_hashes.sh FILE...   Writes the hashes of the pinned packages to envs/*.txt again, after a version was
# changed by hand. Versions stay unchanged, because several packages require other versions than they get. A version that
# Debian 12's Python cannot install is refused.
set -eu
case "${1:-}" in
-h | --help) sed -n '2,${/^#/!q; s/^# //p}' "$0"; exit ;;
-* | '') echo "error: ${1:-no file}: expected FILE..., such as envs/cpu.txt" >&2; exit 2 ;;
esac
uv=${UV:-$(dirname "$0")/../.venv-uv/bin/uv}
for file in "$@"; do
    new=$(mktemp)
    grep '^#' "$file" >"$new"
    sed -e '/^ /d' -e '/^#/d' -e 's/ *\\$//' "$file" |
        "$uv" pip compile --quiet --no-config --no-deps --python-version 3.11.2 \
            --generate-hashes --no-annotate --no-header - >>"$new"
    cat "$new" >"$file"
    rm "$new"
done
