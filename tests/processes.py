"""Processes of the host that tests look for; one that ends while it is read is not among them."""

from pathlib import Path


def matching(condition):
    """Ids of the processes for whose folder in /proc `condition` holds."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if condition(folder):
                pids.append(int(folder.name))
        except OSError:
            continue
    return pids


def command_line(folder):
    """The words of a process, separated by spaces."""
    return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def processes_with(token):
    """Ids of the processes whose command line holds `token`."""
    return matching(lambda folder: token.encode() in (folder / "cmdline").read_bytes())
