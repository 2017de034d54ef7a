"""Writes everything that an experiment publishes into one folder: data set, model, leaderboard submissions,
archive."""

import os
import shutil
from pathlib import Path

from swelab.records import InputError
from swelab.sharing.clone_archive import write_archive
from swelab.sharing.dataset_folder import write_dataset
from swelab.sharing.experiment_files import read_finished
from swelab.sharing.leaderboard_folders import write_submissions
from swelab.sharing.model_folder import write_model
from swelab.sharing.privacy import Private


def write_published(score: Path, to: Path) -> list[str]:
    """Writes the folder `to` completely or not at all. Returns one line for each part that could not be made.

    Sets the working folder to the score's clone. Raises InputError if the score does not pass verification,
    the folder exists, or a file contains something that must not be published.
    """
    to = to.absolute()
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InputError("this folder exists already", to, "a new folder")
    finished = read_finished(score.absolute())
    if to.is_relative_to(Path("results").absolute()):
        raise InputError("lies in results/", to, "a folder elsewhere: what is in results/ is made by rules")
    private, part = Private.of(Path()), to.with_name(f".{to.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        write_archive(finished, part / finished.archive, private)
        write_dataset(finished, part / "dataset", private)
        reason = write_model(finished, part / "model", private)
        missing_parts = [f"model: {reason}"] if reason else []
        missing_parts += [
            f"leaderboard: {each}" for each in write_submissions(finished, part / "leaderboard", private)
        ]
        if to.exists():
            to.rmdir()
        part.replace(to)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return missing_parts
