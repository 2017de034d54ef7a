#!/bin/bash
# Usage: host.sh COMMAND   Turns a fresh Debian machine into a host of a pool. Each step may be repeated.
#   host.sh setup exec-server|pool-server   as root: packages, user, Python environment, token, service
#   host.sh pull LIST [PREFIX]   pulls the images in a file (one per line; PREFIX: a mirror) and allows them
#   host.sh verify [URL]         checks that the server responds, and prints its state
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,${/^#/!q; s/^# //p}' "$0"; exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
settings=${SWELAB_SETTINGS:-/etc/swelab}
python=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}

fail() {
    echo "error: $*" >&2
    exit 2
}

setup() {
    [[ $(id -u) == 0 ]] || fail "setup: expected root"
    [[ $1 == exec-server || $1 == pool-server ]] || fail "setup $1: expected exec-server or pool-server"
    "$root/envs/system.sh" "$python" venv curl
    [[ $1 == pool-server ]] || "$root/envs/system.sh" "$python" dockerd
    id swelab >/dev/null 2>&1 || useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin swelab
    setpriv --reuid=swelab --regid=swelab --clear-groups test -r "$root/scripts/pool.py" ||
        fail "$root: the user swelab cannot read it; expected a clone that is not in a private home"
    "$python" "$root/envs/install.py" "$root/.venv-host" "$root/envs/host.txt"
    install -d -m 750 -o root -g swelab "$settings"
    secret node.token
    [[ $1 == exec-server ]] || secret pool.token
    [[ -e $settings/images ]] || echo "# allowed images: names, patterns, digests" >"$settings/images"
    [[ -e $settings/$1.env ]] || defaults "$1" >"$settings/$1.env"
    sed "s|@ROOT@|$root|g" "$root/hosts/$1.service" >"/etc/systemd/system/swelab-$1.service"
    echo "settings: $settings/$1.env; $settings/node.token must be the same on all machines of a pool"
    [[ -d /run/systemd/system ]] ||
        fail "setup: all is in place, but no systemd runs; start what swelab-$1.service says by other means"
    systemctl daemon-reload
    systemctl enable "swelab-$1.service"
    systemctl restart "swelab-$1.service"
}

secret() { # writes a new token, unless one exists
    [[ -e $settings/$1 ]] && return
    (umask 077 && "$python" -c 'import secrets; print(secrets.token_urlsafe(32))' >"$settings/$1")
    chown swelab: "$settings/$1"
}

defaults() {
    local memory
    memory=$(awk '/^MemTotal/ {print int($2 / 1048576 * 0.85)}' /proc/meminfo)
    echo "SWELAB_LISTEN=127.0.0.1"
    if [[ $1 == exec-server ]]; then
        printf 'SWELAB_PORT=5000\nSWELAB_PLACES=16\nSWELAB_MEMORY_GIB=%d\n' "$memory"
    else
        echo "SWELAB_PORT=18090"
    fi
}

pull() {
    local list=$1 prefix=${2:-} name failed=0 got=0 had=0
    [[ -r $list ]] || fail "$list: no such file; expected names of images, one a line"
    while IFS= read -r name || [[ $name ]]; do
        name=${name%%#*}
        name=${name//[[:space:]]/}
        [[ $name ]] || continue
        [[ $name =~ ^[a-z0-9][A-Za-z0-9._:@/-]*$ ]] || fail "$list: $name is no name of an image"
        if docker image inspect "$name" >/dev/null 2>&1; then
            had=$((had + 1))
        elif docker pull --quiet "${prefix:+$prefix/}$name" >/dev/null </dev/null; then
            [[ ! $prefix ]] || docker tag "$prefix/$name" "$name"
            got=$((got + 1))
        else
            echo "not pulled: $name" >&2
            failed=$((failed + 1))
            continue
        fi
        grep -qxF -- "$name" "$settings/images" 2>/dev/null || echo "$name" >>"$settings/images"
    done <"$list"
    echo "$got pulled, $had were there, $failed could not be had"
    [[ $failed == 0 ]]
}

verify() {
    local url=${1:-http://127.0.0.1:5000} path said
    for path in healthz images; do
        # Passes the token on standard input: ps shows arguments.
        said=$(printf 'header = "Authorization: Bearer %s"\n' "$(cat "$settings/node.token")" |
            curl --noproxy '*' --silent --show-error --max-time 20 --config - "$url/$path") || fail "$url does not answer"
        "$python" -c 'import json, sys
told = json.loads(sys.argv[1])
told.pop("images", None)
print(sys.argv[2], json.dumps(told))
sys.exit(not told.get("ok"))' "$said" "$path" || fail "$url/$path is not well"
    done
}

case ${1:-} in
    setup) setup "${2:-exec-server}" ;;
    pull) pull "${2:?a file of names is missing}" "${3:-}" ;;
    verify) verify "${2:-}" ;;
    *) fail "${1:-nothing}: expected setup, pull or verify" ;;
esac
