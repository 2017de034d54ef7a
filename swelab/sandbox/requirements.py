"""Checks that this machine has the kernel features and programs that sandboxes need."""

import os
import re
import shutil
import threading
from pathlib import Path

from swelab.sandbox.protocol import BackendMissing

# sysctl: (value that forbids user namespaces, value that allows them)
_FORBIDDING = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "15000"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
}


def search_path() -> str:
    """Returns PATH plus the folders of administrators' programs, which the PATH of `su` lacks."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def tool(name: str) -> str | None:
    """Returns the path of a program of the host, or None if it is missing."""
    return shutil.which(name, path=search_path())


def check_kernel() -> None:
    """Raises BackendMissing if the kernel lacks features that we need to watch and end sandboxes."""
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    # pidfds need Linux 5.3. Before Linux 5.14, the limit on processes counts all processes of the host user.
    # Since then, it counts the processes of a user namespace.
    needed = (5, 3) if os.geteuid() == 0 else (5, 14)
    if release < needed:
        raise BackendMissing(f"Linux {needed[0]}.{needed[1]} or newer is needed, not {os.uname().release}")
    if not os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children"):
        raise BackendMissing("this kernel does not list children in /proc (CONFIG_PROC_CHILDREN)")


def diagnosis(message: str, *, as_root: bool) -> str:
    """Returns the reason why bwrap does not work here, in one line: bwrap's message and the common cause."""
    if "Unknown option" in message:
        return f"bubblewrap 0.8 or newer is needed: {message}"
    if as_root and "not permitted" in message:
        return f"bubblewrap does not work here: {message}; root needs CAP_SYS_ADMIN (a privileged container)"
    for sysctl, (bad, good) in () if as_root else _FORBIDDING.items():
        path = Path("/proc/sys", sysctl.replace(".", "/"))
        if path.exists() and path.read_text().strip() == bad:
            return f"bubblewrap needs user namespaces: set sysctl {sysctl}={good} (it is {bad})"
    return f"bubblewrap does not work here: {message}"
