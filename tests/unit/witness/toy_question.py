"""A package of one module and its tests, run as a witness question with pytest, as graders do."""

import os
import subprocess
import sys
import threading

from swelab.witness import CHANNEL, runtime_files
from swelab.witness.forming import command_args


def run(folder, package, question, answers=False, cases=None):
    """Returns the data of `package` (text of pkg.py) for the question."""
    folder.mkdir()
    code = folder / "code"
    code.mkdir()
    for name, data in runtime_files(cases).items():
        (code / name).write_bytes(data)
    root = folder / "root"
    for name, text in (question.answers if answers else question.files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "pkg.py").write_text(package)
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    said = []
    reader = threading.Thread(target=lambda: said.append(pipe.read_bytes()))
    reader.start()
    keep = os.open(pipe, os.O_RDWR)
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": f"{code}:{root}",
        CHANNEL: str(pipe),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *command_args(question.targets)]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=600)
    os.close(keep)
    reader.join()
    return said[0], done.stdout
