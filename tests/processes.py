"""Finds processes of the host. A process that ends while it is read is left out."""

from pathlib import Path


def matching(condition):
    """Returns the pids for whose folder in /proc `condition` is true."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if condition(folder):
                pids.append(int(folder.name))
        except OSError:
            continue
    return pids


def command_line(folder):
    """Returns the words of a process's command line, separated by spaces."""
    return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def processes_with(token):
    """Returns the pids whose command line contains `token`."""
    return matching(lambda folder: token.encode() in (folder / "cmdline").read_bytes())
