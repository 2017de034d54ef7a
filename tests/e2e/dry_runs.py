"""Dry runs without the start of a program: Snakemake is loaded once, and each run is a fork of that process.

    python -m tests.e2e.dry_runs FOLDER     reads arguments of snakemake as a JSON list a line

Answers each with a line of JSON: [exit code, all output].
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class DryRuns:
    """A process that makes dry runs in a clone."""

    def __init__(self, folder: Path):
        command = [sys.executable, "-m", "tests.e2e.dry_runs", str(folder)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *arguments: str) -> tuple[int, str]:
        """Returns exit code and output of snakemake with these arguments and -n."""
        print(json.dumps([*arguments, "-n"]), file=self.process.stdin, flush=True)
        code, text = json.loads(self.process.stdout.readline())
        return code, text

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=30)


def rules_of(text: str) -> dict[str, int]:
    """Returns the rules that a dry run would run, with their counts, from its output."""
    counts = {}
    for line in text.partition("Job stats:")[2].splitlines()[3:]:
        parts = line.split()
        if len(parts) != 2 or parts[0] == "total":
            break
        counts[parts[0]] = int(parts[1])
    return counts


def serve(folder: str) -> None:
    """Answers requests until its input ends."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    cli = importlib.import_module("snakemake.cli")
    for name in ("swelab.configs.experiment", "swelab.console.run_display", "swelab.cluster.site"):
        importlib.import_module(name)
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as output:
            if (child := os.fork()) == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                code = 1
                with contextlib.suppress(SystemExit):
                    try:
                        cli.main(json.loads(line))
                    except SystemExit as end:
                        code = int(end.code or 0)
                sys.stdout.flush()
                os._exit(code)
            _, status = os.waitpid(child, 0)
            output.seek(0)
            print(json.dumps([os.waitstatus_to_exitcode(status), output.read()]), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
