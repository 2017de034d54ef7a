#!/usr/bin/env bash
# Usage: site_python.sh ARGUMENT...   Runs the Python of an environment that a site file names: in the apptainer image
# $SWELAB_IMAGE, or else that of the modules $SWELAB_MODULES.
set -eu
case "${1:-}" in --help) sed -n '2,${/^#/!q; s/^# //p}' "$0"; exit ;; esac
if [ -n "${SWELAB_IMAGE:-}" ]; then
    exec apptainer exec --nv --bind "$PWD" --pwd "$PWD" "$SWELAB_IMAGE" python3 "$@"
fi
# shellcheck disable=SC2086
module load ${SWELAB_MODULES:?expected the modules of a site file, or its image in SWELAB_IMAGE}
exec python3 "$@"
