"""Imports Harbor's task folders, by hand or for an evaluation: rows, and archives of our own tasks."""

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from swelab.records import InputError, write_bytes
from swelab.records.task_records import Task
from swelab.tasks.harbor.harbor_archives import canonical, clean_archive
from swelab.tasks.harbor.harbor_folder import HarborFolder, Refused
from swelab.tasks.harbor.harbor_source import Usable, read_rows


@dataclass
class ImportResult:
    """The result of an import.

    rows: the rows of the usable folders, in the order of the folders' names. refused: maps a folder to the
    reason for refusal.
    """

    rows: list[Task] = field(default_factory=list)
    refused: dict[str, Refused] = field(default_factory=dict)

    def reasons(self) -> dict[str, int]:
        """Returns the number of refused folders for each reason."""
        return dict(Counter(fault.reason for fault in self.refused.values()).most_common())


def import_folders(place: Path, repos: Path, usable: Usable) -> ImportResult:
    """Reads the task folders in a folder, and adds missing archives to `repos`.
    Prints the refused folders. Raises InputError if there is no such folder, or no usable task folder."""
    digests: dict[str, str] = {}

    def keep(folder: HarborFolder) -> None:
        name, expected = folder.repository, str(folder.ours.get("sha256"))
        path = repos / f"{name}.tar"
        if name not in digests:
            if not path.is_file():
                write_bytes(path, clean_archive(folder))
            digests[name] = canonical(path)
        if digests[name] != expected:
            raise Refused("its repository is another one", f"{path} has other files: name another folder")

    result = ImportResult()
    for path, row in read_rows(place, usable, keep):
        if isinstance(row, Refused):
            result.refused[path.name] = row
            print(f"refused: {path.name}: {row}", file=sys.stderr)
        else:
            result.rows.append(row)
    if not result.rows:
        why = f"no task folder can be used ({result.reasons()})" if result.refused else "holds no task folder"
        raise InputError(why, place, "Harbor's task folders")
    return result
