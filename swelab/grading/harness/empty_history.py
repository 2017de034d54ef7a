"""A repository without content, which takes the place of the checkout's own while tests run.

The checkout's own repository holds the tests' files, which a task may hide, and may hold later versions. The
one here has a single commit without files. It bears the last tag of the checkout's history, so that programs
that ask git for their version still get one.
"""

import hashlib
import zlib

FOLDER = "history"
"""Folder of the repository, next to the script."""
SCRIPT = "history.sh"


def _object(kind: str, content: bytes) -> tuple[str, bytes]:
    """Returns (hash, file content) of an object of git."""
    data = b"%s %d\0%s" % (kind.encode(), len(content), content)
    return hashlib.sha1(data).hexdigest(), zlib.compress(data)


_BY = "swelab <swelab@localhost> 946684800 +0000"
_TREE = _object("tree", b"")
_COMMIT = _object(
    "commit", f"tree {_TREE[0]}\nauthor {_BY}\ncommitter {_BY}\n\nThe history is left out.\n".encode()
)
_FILES = {
    "HEAD": b"ref: refs/heads/main\n",
    "config": b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
    "refs/heads/main": f"{_COMMIT[0]}\n".encode(),
    **{f"objects/{name[:2]}/{name[2:]}": data for name, data in (_TREE, _COMMIT)},
}
_SCRIPT = """if [ -e {root}/.git ]; then
    swelab_tag=
    if [ -s {root}/.git/packed-refs ] || compgen -G "{root}/.git/refs/tags/*" >{folder}/tags; then
        swelab_tag=$(git -c safe.directory='*' -C {root} describe --tags --abbrev=0 2>/dev/null) || :
    fi
    rm -rf {root}/.git {folder}/tags
    mv {folder}/{history} {root}/.git
    [ -z "$swelab_tag" ] || printf '%s refs/tags/%s\\n' {commit} "$swelab_tag" >{root}/.git/packed-refs
    unset swelab_tag
fi
rm -rf {folder}/{history} {folder}/{script}
"""


def history_files(root: str, folder: str) -> dict[str, bytes]:
    """Returns the files from which `history_line` works, by path in `folder`. root: the checkout."""
    parts = {"root": root, "folder": folder, "history": FOLDER, "script": SCRIPT, "commit": _COMMIT[0]}
    files = {f"{FOLDER}/{name}": data for name, data in _FILES.items()}
    return files | {SCRIPT: _SCRIPT.format(**parts).encode()}


def history_line(folder: str) -> str:
    """Returns the line of Bash that puts the empty repository in its place."""
    return f"{{ . {folder}/{SCRIPT}; }} 2>/dev/null"
