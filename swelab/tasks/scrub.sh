# Runs inside a sandbox: the repository of the working directory is made anew, with the history of its base
# commit and nothing else. Built up rather than cleaned out: what is not copied cannot be forgotten. The old
# repository's configuration is read only by commands that run no program of its choosing, the new one has none.
#
# scrub.sh KIND BASE FOLDER   KIND fix: BASE is the commit that the task starts from, "" for HEAD.
#                             KIND bug: the start is one commit without parents: the branch BASE, else HEAD with
#                                       the patch FOLDER/patch, without the files in FOLDER/removed.
#                   KIND any: as fix; where there is no repository, one is made of what the folder holds.
# FOLDER/touched: files that the task's patch changes (NUL after each), as FOLDER/removed.
# Prints "BASE <commit>" (exit 0) or "REFUSED <why>" (exit 3).
set -u
unset ${!GIT_@} IFS
export LC_ALL=C HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0
export GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none
export GIT_AUTHOR_NAME=swelab GIT_AUTHOR_EMAIL=swelab@localhost GIT_AUTHOR_DATE=2000-01-01T00:00:00Z
export GIT_COMMITTER_NAME=swelab GIT_COMMITTER_EMAIL=swelab@localhost GIT_COMMITTER_DATE=2000-01-01T00:00:00Z
kind=$1 wanted=$2 folder=$3
here=$PWD old=$PWD/.git new=$PWD/.git/swelab-new

refuse() { printf 'REFUSED %s\n' "$*"; exit 3; }
plain() { git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 "$@"; }
before() { plain --git-dir="$old" "$@"; }
anew() {
    GIT_DIR=$new GIT_WORK_TREE=$here GIT_ALTERNATE_OBJECT_DIRECTORIES=$old/objects plain -c core.fsync=none "$@"
}
after() { plain --git-dir="$old" --work-tree="$here" "$@"; }  # once the new one is in its place

command -v git >/dev/null || refuse "the image has no git"
[ ! -L "$old" ] || refuse "$old is a symlink: the repository lies outside of the working copy"
[ ! -f "$old" ] || refuse "$old is a file: the repository of this worktree or submodule lies elsewhere"
if [ "$kind" = any ]; then
    inner=$(find "$here" -mindepth 2 -name .git -type d -prune -print 2>/dev/null | head -n 1)
    [ -z "$inner" ] || refuse "${inner%/.git} is a repository of its own: its changes would be in no patch"
    if [ ! -e "$old" ]; then
        { plain init -q "$here" && after add -A -f && after commit -q --allow-empty -m base; } >/dev/null 2>&1 ||
            refuse "no repository can be made of $here"
    fi
fi
if [ ! -d "$old" ]; then
    [ -d objects ] && [ -f HEAD ] && refuse "$here is a bare repository without a working copy"
    refuse "there is no git repository at $here"
fi
for part in objects objects/pack refs; do
    [ ! -L "$old/$part" ] || refuse "$old/$part is a symlink: the repository lies outside of the working copy"
done
if [ -f "$old/objects/info/alternates" ]; then
    while IFS= read -r path; do
        case $path in '' | '#'*) continue ;; /*) ;; *) path=$old/objects/$path ;; esac
        case $(readlink -f -- "$path") in
            "$old"/*) ;;
            *) refuse "objects are borrowed from $path, which stays readable" ;;
        esac
    done <"$old/objects/info/alternates"
fi
head=$(before rev-parse --verify -q 'HEAD^{commit}' 2>/dev/null) || refuse "HEAD names no commit that can be read"
if [ ${#head} = 64 ]; then
    format=sha256 empty='[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = false\n'
    empty=$empty'[extensions]\n\tobjectformat = sha256\n'
else
    format=sha1 empty='[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n'
fi

rm -rf "$new" && mkdir -p "$new/objects/pack" "$new/objects/info" "$new/refs/heads" "$new/info" || refuse "$old cannot be written"
printf "$empty\tlogallrefupdates = true\n" >"$new/config"
[ $format = sha1 ] || printf "$empty" >"$new/config"
echo 'ref: refs/heads/main' >"$new/HEAD"
[ -f "$old/info/exclude" ] && [ ! -L "$old/info/exclude" ] && cp "$old/info/exclude" "$new/info/exclude"
[ -f "$old/shallow" ] && [ ! -L "$old/shallow" ] && grep -E '^[0-9a-f]{40,64}$' "$old/shallow" >"$new/shallow"

# Repositories of submodules lie in the old one and go with it: their working copies become plain folders.
find "$here" -path "$old" -prune -o -name .git -type f -print0 | while IFS= read -r -d '' link; do
    place=$(sed -n 's/^gitdir: //p' "$link" | head -n 1)
    case $(cd "${link%/*}" && readlink -m -- "$place") in "$old"/*) rm -f -- "$link" ;; esac
done

anew read-tree "$head" 2>/dev/null || refuse "files of HEAD are missing from the repository (a partial or damaged clone)"
anew update-index -q --really-refresh >/dev/null 2>&1
parent=
if [ "$kind" = bug ]; then
    tip=$(before for-each-ref --format='%(objectname)' "refs/heads/$wanted" "refs/remotes/*/$wanted" | head -n 1)
    if [ -n "$tip" ]; then
        anew read-tree -u --reset "$tip" 2>/dev/null || refuse "the branch $wanted cannot be checked out"
    elif anew apply --check --whitespace=nowarn "$folder/patch" 2>/dev/null; then
        anew apply --whitespace=nowarn "$folder/patch"
    elif ! anew apply --check -R --whitespace=nowarn "$folder/patch" 2>/dev/null; then
        refuse "there is no branch $wanted, and the bug's patch does not fit"
    fi
    if [ -z "$tip" ]; then
        while IFS= read -r -d '' path; do rm -f -- "./$path"; done <"$folder/removed"
    fi
elif [ -n "$wanted" ] && [ "$wanted" != "$head" ]; then
    anew cat-file -e "$wanted^{commit}" 2>/dev/null || refuse "the base commit $wanted is not in the repository"
    made_by=$(anew log -1 --format='%P %ae' "$head")
    [ "$made_by" = "$wanted setup@swebench.config" ] ||
        refuse "HEAD is $head: neither the base commit $wanted nor the benchmark's set-up commit on it"
    parent=$head
else
    parent=$head
fi
while IFS= read -r -d '' path; do # compiled code of what the file was before
    name=${path##*/} && rm -f -- "./${path%"$name"}__pycache__/${name%.py}".*.pyc
done <"$folder/touched"
if [ "$kind" = bug ]; then # or the newest file would be the one with the bug; older than none that was built from it
    now=$(date +%s)
    anew ls-files -z -c -o --exclude-standard | xargs -0 -r touch -c -h -d "@$now" -- 2>/dev/null
    find "$here" -path "$old" -prune -o -type d -exec touch -c -d "@$now" {} + 2>/dev/null
fi

# What the image has changed or added belongs to the start, or it would be in every patch.
anew add -A 2>/dev/null || refuse "the working copy cannot be read"
tree=$(anew write-tree) || refuse "the working copy cannot be stored"
base=$parent
if [ -z "$parent" ]; then
    base=$(anew commit-tree "$tree" -m base </dev/null)
elif [ "$tree" != "$(anew rev-parse "$parent^{tree}")" ]; then
    base=$(anew commit-tree "$tree" -p "$parent" -m "state of the image" </dev/null)
fi
[ -n "$base" ] || refuse "no commit could be made"
if [ -f "$new/shallow" ]; then # boundaries of other branches tell of commits that are gone
    anew rev-list "$base" 2>/dev/null | sort >"$new/known"
    sort "$new/shallow" | comm -12 - "$new/known" >"$new/shallow.kept"
    mv "$new/shallow.kept" "$new/shallow" && rm "$new/known"
    [ -s "$new/shallow" ] || rm "$new/shallow"
fi
anew rev-list --objects "$base" >"$new/list" 2>/dev/null || refuse "objects of the base commit are missing (a partial or damaged clone)"
anew pack-objects -q --delta-base-offset "$new/objects/pack/pack" <"$new/list" >/dev/null 2>&1 || refuse "the history could not be packed"
rm -rf "$new/list" "$new"/objects/[0-9a-f][0-9a-f] "$new/COMMIT_EDITMSG"
echo "$base" >"$new/refs/heads/main"
mv "$old" "$here/.git-before" && mv "$here/.git-before/swelab-new" "$old" && rm -rf "$here/.git-before" "$folder"
[ ! -e "$here/.git-before" ] || refuse "the old repository cannot be removed"

# Checked as an attacker would look: nothing is found but the base commit and what leads to it.
[ -z "$(after rev-list --all --reflog HEAD --not "$base")" ] || refuse "there are commits beyond the base commit"
[ "$(after for-each-ref --format='%(refname)')" = refs/heads/main ] || refuse "there are other refs"
[ "$kind" != bug ] || [ "$(after rev-list --count HEAD)" = 1 ] || refuse "the start has a parent"
[ -z "$(after remote)$(cd "$old" && find hooks worktrees logs modules objects/info -type f 2>/dev/null)" ] ||
    refuse "the new repository holds more than its history"
held=$(after cat-file --batch-all-objects --batch-check='%(objectname)' | sort -u | cksum)
[ "$held" = "$(after rev-list --objects "$base" | cut -d' ' -f1 | sort -u | cksum)" ] || refuse "there are objects beyond the base commit"
printf 'BASE %s\n' "$base"
