#!PYTHON
"""Stands in for the program apptainer: writes down its command line and obeys the options with bubblewrap.

It knows the options that the backend uses and refuses all others, as the real program does.
"""

import json
import os
import sys
from pathlib import Path

FLAGS = {
    *("--containall", "--cleanenv", "--no-eval", "--no-umask", "--pid", "--ipc", "--uts", "--net"),
    *("--userns", "--no-privs", "--drop-caps=all"),
}
VALUES = {"--no-mount", "--network", "--hostname", "--bind", "--pwd"}


def main(arguments):
    with (Path(__file__).parent / "argv.jsonl").open("a") as log:
        log.write(json.dumps(arguments) + "\n")
    if arguments.pop(0) != "exec":
        sys.exit("unknown command")
    binds, options, user = [], {}, {}
    while arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option.startswith("--security="):
            key, value = option.partition("=")[2].split(":")
            user[key] = value
        elif option == "--bind":
            binds.append(arguments.pop(0).split(":"))
        elif option in VALUES:
            options[option] = arguments.pop(0)
        elif option not in FLAGS:
            sys.exit(f"unknown flag: {option}")
    image = Path(arguments.pop(0))
    if options["--network"] != "none" or not image.is_dir():
        sys.exit("FATAL: could not open image")
    inside = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--clearenv"]
    inside += ["--hostname", options["--hostname"], "--setenv", "PATH", "/usr/bin:/bin"]
    for path in sorted(image.iterdir()):
        if path.is_symlink():
            inside += ["--symlink", os.readlink(path), f"/{path.name}"]
        elif path.name not in ("proc", "dev", "sys", "tmp", "home", "etc"):
            inside += ["--ro-bind", str(path), f"/{path.name}"]
    inside += ["--tmpfs", "/etc", "--perms", "0755", "--dir", "/home", "--proc", "/proc", "--dev", "/dev"]
    for name in ("alternatives", "ld.so.cache"):
        inside += ["--ro-bind-try", str(image / "etc" / name), f"/etc/{name}"]
    for source, place, mode in binds:
        inside += ["--bind" if mode == "rw" else "--ro-bind", source, place]
    inside += ["--remount-ro", "/etc", "--remount-ro", "/"]
    drop = []
    if user:
        inside += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        inside += ["--cap-add", "CAP_SETPCAP"]
        drop = ["setpriv", f"--reuid={user['uid']}", f"--regid={user['gid']}", "--clear-groups"]
        drop += ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    os.execvp("bwrap", [*inside, "--", *drop, "env", f"--chdir={options['--pwd']}", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
