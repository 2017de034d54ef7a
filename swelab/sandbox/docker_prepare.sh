# Run once for each image, as root in a container of it: what it leaves becomes the image of the sandboxes.
# $1: uid of the sandbox's user; $2: folder of the image that /testbed is a copy of; $3: git's settings;
# $4: text of /etc/hosts; $5: the folder that folders of scripts lie in; the rest: their names.
set -eu
LC_ALL=C
for tool in setpriv tar head stat chmod cp ln mv rm mkdir cat; do
    type -P "$tool" >/dev/null || { echo "the image has no program $tool" >&2; exit 3; }
done
[[ ! -L /testbed && ! -L /home && ! -L /tmp ]] || { echo "/testbed, /home or /tmp of the image is a link" >&2; exit 3; }
mkdir -p /testbed /tmp /home/agent /.swelab/repository
chmod 700 /.swelab # its repository is not scrubbed: see docker_init.sh
for file in passwd group; do
    line="agent:x:$1:$1:agent:/home/agent:/bin/bash"
    [[ $file == passwd ]] || line="agent:x:$1:"
    { echo "$line"; cat /etc/$file 2>/dev/null || :; } >/.swelab/$file
    cat /.swelab/$file >/etc/$file
    chmod 644 /etc/$file
done
printf '%s' "$4" >/.swelab/hosts # an engine hides the image's own
chmod 644 /.swelab/hosts
for name in "${@:6}"; do rm -rf "/${name:?}" && ln -s "$5/$name" "/$name"; done
[[ -e /etc/gitconfig ]] || printf '%s' "$3" >/etc/gitconfig
if [[ -d $2 ]]; then
    mkdir /.swelab/repository/testbed
    cp -dR --preserve=mode,timestamps -- "$2/." /.swelab/repository/testbed
    chown -Rh "$1:$1" /.swelab/repository/testbed
    real=$(cd -P -- "$2" && pwd)
    case $real in
        /testbed | /testbed/*) ;; # mounted over
        / | /home) echo "the image's working directory is $real" >&2; exit 3 ;;
        *) rm -rf -- "$real" && ln -s /testbed "$real" ;; # what was installed in place finds its files
    esac
fi
