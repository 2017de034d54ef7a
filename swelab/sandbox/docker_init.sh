# First process of a docker sandbox. It reads requests from its stdin, runs each as the user of the sandbox,
# and answers on its stdout: what the command wrote, then one line "NONCE CODE LIMIT". Only this process knows
# the nonce, and when it writes it every other process of the container has ended.
#
# A request is "NONCE INPUT WALL CPU MEMORY DISK COUNT" (centiseconds, bytes), COUNT words for the inner shell, each
# after a line with its length, and, if INPUT is 1, chunks for its stdin, each after its length, up to a 0. If INPUT
# is 2, all that follows is its stdin: it is the last request, and the end of the stream is the end of the command.
#
# It forks nothing while a command runs: the command may have taken every process the container is allowed.
#
# The first command starts in the folder SANDBOX_START, if there is one. It lies in a folder that is closed to the
# user of the sandbox: only who starts there reaches the image's repository.

LC_ALL=C
exec 3<&0 </dev/null
[[ ! $SANDBOX_START ]] || cd "$SANDBOX_START"
exec {told}<> <(:) {idle}<> <(:)
chmod 622 /proc/self/fd/1 # the user of the sandbox may open /dev/stdout
cgroup=/sys/fs/cgroup
[[ -e $cgroup/cgroup.controllers ]] && unified=1 || unified=0

if ((unified)); then
    cpu_file=$cgroup/cpu.stat cpu_key=usage_usec cpu_unit=10000
    memory_file=$cgroup/memory.stat private_key=anon shared_key=shmem oom_file=$cgroup/memory.events
else
    cpu_file=$cgroup/cpuacct/cpuacct.usage cpu_key= cpu_unit=10000000
    memory_file=$cgroup/memory/memory.stat private_key=total_rss shared_key=total_shmem
    oom_file=$cgroup/memory/memory.oom_control
fi
for file in $cpu_file $memory_file $oom_file; do
    [[ -r $file ]] || { echo "the container cannot read $file of its cgroup" >&2; exit 1; }
done

clock() { # now: centiseconds of a clock that nobody sets
    read -r now _ </proc/uptime
    now=$((10#${now/./}))
}

read_cpu() { # cpu: centiseconds used by all processes so far
    local key value
    while read -r key value; do
        [[ $cpu_key ]] || value=$key
        [[ $cpu_key && $key != "$cpu_key" ]] || { cpu=$((value / cpu_unit)); return; }
    done <"$cpu_file"
}

read_memory() { # private, shared: bytes in use now (files in memory are shared); killed: times the kernel stepped in
    local key value
    while read -r key value; do
        case $key in
            "$private_key") private=$value ;;
            "$shared_key") shared=$value ;;
        esac
    done <"$memory_file"
    while read -r key value; do
        [[ $key != oom_kill ]] || killed=$value
    done <"$oom_file"
}

meter() { # tell the bytes in the private folders, and in /dev/shm beside them, twice a second
    local pause=0.1 total free size sizes
    while :; do
        read -r -t $pause -u "$idle"
        pause=0.5 sizes=()
        while read -r total free size; do
            sizes+=($(((total - free) * size)))
        done < <(stat -f -c '%b %f %S' /testbed /tmp /home/agent /dev/shm)
        ((${#sizes[@]} < 4)) || echo "$nonce used $((sizes[0] + sizes[1] + sizes[2])) ${sizes[3]} ." >&"$told"
    done
}

chunks() { # the request's input
    local length
    while read -r -u 3 length && ((length)); do
        head -c "$length" <&3
    done
}

become() { # the inner shell, in place of this subshell; it opens stdout anew so that no flag of it is shared
    exec -c setpriv --reuid="$SANDBOX_UID" --regid="$SANDBOX_UID" --clear-groups --inh-caps=-all \
        --bounding-set=-all --no-new-privs -- /bin/bash --norc -c "${words[@]}" \
        >/proc/self/fd/1 2>&1 3<&- {told}>&- {idle}>&-
}

judge() { # limit: what the running command has exceeded, in `$1` bytes of files and `$2` of /dev/shm if told
    read_cpu
    read_memory
    if ((cpu - cpu_before >= most_cpu)); then
        limit=cpu
    elif ((killed > killed_before || private > most_memory)); then
        limit=memory
    elif [[ $1 ]] && (($1 > most_disk)); then
        limit=disk
    elif [[ $1 ]] && ((private + shared - $1 - $2 > most_memory)); then
        ((++over < 2)) || limit=memory # twice: files may have grown since they were measured
    fi
}

follow() { # code, limit: how the command ends
    local line= piece words pause ended
    while [[ ! $limit ]]; do
        clock
        ((now < ends)) || { limit=wall; return; }
        pause=$((ends - now < 20 ? ends - now : 20))
        printf -v pause '0.%02d' "$pause"
        # The pause may end in the middle of a line, which then comes in pieces, or just after one, whose end
        # `read` then does not tell: the dot does.
        ended=
        ! IFS= read -r -t "$pause" -u "$told" piece || ended=1
        line+=$piece
        if [[ $ended || $line == *" ." ]]; then
            words=($line)
            line=
            [[ ${words[0]} == "$nonce" ]] || continue
            [[ ${words[1]} != exit ]] || { code=${words[2]}; return; }
            judge "${words[2]}" "${words[3]}"
        else
            judge "" ""
            # Nothing is asked meanwhile: something to read is the end of the caller.
            ((input)) || ! read -t 0 -u 3 || exit 0
        fi
    done
}

alone() {
    local entry
    for entry in /proc/[1-9]*; do
        [[ $entry == /proc/1 ]] || return 1
    done
}

while read -r -u 3 nonce input wall most_cpu most_memory most_disk count; do
    words=()
    for ((i = 0; i < count; i++)); do
        read -r -u 3 length
        IFS= read -r -u 3 -N "$length" word
        words+=("$word")
    done
    code=0 limit= over=0
    read_cpu
    read_memory
    cpu_before=$cpu killed_before=$killed
    clock
    ends=$((now + wall))
    {
        if ((input == 2)); then
            { cat <&3; echo "$nonce exit 129 ." >&"$told"; } | { (become); echo "$nonce exit $? ." >&"$told"; }
        elif ((input)); then
            chunks | become
        else
            (become)
        fi
        echo "$nonce exit $? ." >&"$told"
    } 2>/dev/null &
    meter 2>/dev/null &
    follow
    kill -9 -1 2>/dev/null
    until alone; do
        read -r -t 0.002 -u "$idle"
    done
    cd /
    read_memory
    ((killed == killed_before)) || limit=${limit:-memory}
    until printf '%s %d %s\n' "$nonce" "$code" "${limit:--}"; do
        read -r -t 0.01 -u "$idle"
    done
    [[ ! $limit ]] || ((!input)) || exit 0 # what is left of the input is no request
done 2>/dev/null
