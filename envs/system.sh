#!/bin/sh
# Usage: system.sh PYTHON PROGRAM...   Installs the Debian packages of missing programs when root;
# otherwise prints what to request from the administrator. Prints nothing if no program is missing.
set -eu
case "${1:-}" in -h | --help) sed -n '2,${/^#/!q; s/^# //p}' "$0"; exit ;; esac
PATH=$PATH:/usr/sbin:/sbin # where dockerd is
python=$1
shift

if [ -z "$python" ]; then
    echo "error: no python3 found: expected Python 3.11, or a later one that fetches it (or set PYTHON=/path/to/python3.11)" >&2
    exit 2
fi
# The installer runs in any of these; the environments get Python 3.11 (envs/get_python.py).
if ! version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 9))'); then
    echo "error: $python${version:+ is Python $version}: expected Python 3.9 or later (set PYTHON=/path/to/python3.11)" >&2
    exit 2
fi

missing=
for program in "$@"; do
    case $program in
        venv) "$python" -c 'import ensurepip' 2>/dev/null || missing="$missing python$version-venv" ;;
        dockerd) { command -v dockerd && command -v docker; } >/dev/null || missing="$missing docker.io" ;;
        munged) command -v munged >/dev/null || missing="$missing munge" ;;
        slurmctld) command -v slurmctld >/dev/null || missing="$missing slurm-wlm" ;;
        bwrap) command -v bwrap >/dev/null || missing="$missing bubblewrap" ;;
        *) command -v "$program" >/dev/null || missing="$missing $program" ;;
    esac
done

if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "error: missing on this machine:$missing; ask the administrator to run: apt-get install$missing" >&2
        exit 2
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq -o DPkg::Lock::Timeout=600
    # From Debian 13 on, the client is a package of its own.
    case "$missing " in *" docker.io "*) ! apt-cache show docker-cli >/dev/null 2>&1 || missing="$missing docker-cli" ;; esac
    # Another program may be installing packages, such as a machine's own updates.
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600 $missing >/dev/null
fi

# Bubblewrap may be installed but forbidden to work. This is reported before large downloads.
case " $* " in *" bwrap "*) ;; *) exit 0 ;; esac
[ "$(id -u)" = 0 ] && user= || user="--unshare-user"
# shellcheck disable=SC2086
if ! said=$(bwrap $user --unshare-pid --unshare-net --ro-bind / / --proc /proc --dev /dev true 2>&1); then
    echo "error: bubblewrap does not work here: $said" >&2
    for forbidding in kernel/unprivileged_userns_clone=0 user/max_user_namespaces=0 \
        kernel/apparmor_restrict_unprivileged_userns=1; do
        name=${forbidding%=*}
        if [ "$(cat "/proc/sys/$name" 2>/dev/null)" = "${forbidding#*=}" ]; then
            echo "error: sysctl $(echo "$name" | tr / .) is ${forbidding#*=}, which forbids user namespaces" >&2
        fi
    done
    echo "error: ask the administrator to allow it, or set backend: docker in configs/config.yaml" >&2
    exit 2
fi
