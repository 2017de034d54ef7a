"""Isolates sandboxes from the machine: no network, no other processes, no privileges.

Each backend has its own options here. Other modules limit files (`rootfs`), resources (`resource_limits`) and
system calls (`seccomp`).
"""

from typing import Any

_BWRAP = (
    *("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "sandbox", "--new-session", "--die-with-parent", "--clearenv"),
)
_AS_ROOT = (
    *("--cap-drop", "ALL", "--cap-add", "CAP_SETUID"),
    *("--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),
)
_AS_USER = ("--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000")
APPTAINER = (
    *("--net", "--network", "none", "--pid", "--ipc", "--uts", "--hostname", "sandbox"),
    *("--containall", "--cleanenv", "--no-eval", "--no-umask"),
    *("--no-mount", "home,tmp,cwd,hostfs,bind-paths"),
)
"""Options of apptainer that isolate a sandbox."""


def bwrap(*, as_root: bool) -> list[str]:
    """Returns bwrap's options.

    as_root: whether we are root, so that setpriv changes the user in the sandbox.
    """
    return [*_BWRAP, *(_AS_ROOT if as_root else _AS_USER)]


def docker(*capabilities: str) -> dict[str, Any]:
    """Returns the host settings of a container. Only the container's first process has the capabilities."""
    return {
        "NetworkMode": "none",
        "CapDrop": ["ALL"],
        "CapAdd": list(capabilities),
        "SecurityOpt": ["no-new-privileges"],
    }
