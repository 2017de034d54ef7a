#!/bin/sh
# Usage: system.sh PYTHON PROGRAM...   Installs the Debian packages of missing programs when root;
# otherwise says what to ask the administrator for. Prints nothing when all are there.
set -eu
PATH=$PATH:/usr/sbin:/sbin # where dockerd is
python=$1
shift

if [ -z "$python" ] || ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
    echo "error: ${python:-no python3 found}: expected Python 3.11 (set PYTHON=/path/to/python3.11)" >&2
    exit 2
fi

missing=
for program in "$@"; do
    case $program in
        venv) "$python" -c 'import ensurepip' 2>/dev/null || missing="$missing python3.11-venv" ;;
        dockerd) command -v dockerd >/dev/null || missing="$missing docker.io" ;;
        munged) command -v munged >/dev/null || missing="$missing munge" ;;
        slurmctld) command -v slurmctld >/dev/null || missing="$missing slurm-wlm" ;;
        bwrap) command -v bwrap >/dev/null || missing="$missing bubblewrap" ;;
        *) command -v "$program" >/dev/null || missing="$missing $program" ;;
    esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "error: missing on this machine:$missing; ask the administrator to run: apt-get install$missing" >&2
    exit 2
fi
