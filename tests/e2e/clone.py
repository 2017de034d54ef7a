"""A copy of the repository with small recipes beside the shipped ones; runs snakemake there."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import run_program
from tests.e2e.dry_runs import rules_of

ROOT = Path(__file__).resolve().parents[2]
RECIPES = Path(__file__).parent / "configs"
TARGETS = ["results/verified_score.json", "results/report.html"]


def copy_repository(folder: Path) -> None:
    """Copies the files that git would commit."""
    listed = run_program(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def make_clone(folder: Path) -> Path:
    """Makes a copy with the small recipes, and with source archives that earlier tests downloaded."""
    copy_repository(folder)
    shutil.copytree(RECIPES, folder / "configs", dirs_exist_ok=True)
    cache = ROOT / "results" / "downloads"
    if cache.is_dir():
        shutil.copytree(cache, folder / "results" / "downloads", dirs_exist_ok=True)
    return folder


def toolbox() -> str:
    """What sandboxes see."""
    return os.environ.get("SWELAB_TOOLBOX") or str(ROOT / ".venv-sandbox")


def command(*arguments: str, config=(), targets=TARGETS) -> list[str]:
    settings = [*config, f"toolbox={toolbox()}"]
    if not any(setting.startswith("experiment=") for setting in config):
        settings.append("experiment=small")
    return [sys.executable, "-m", "snakemake", *targets, *arguments, "--config", *settings]


def command_on_slurm(*arguments: str, config=(), program="tests.e2e.impatient") -> list[str]:
    """Returns a command for the shipped profile, less what only a real controller or slow disk needs."""
    quick = ("--slurm-init-seconds-before-status-checks=1", "--latency-wait=10")
    snakemake = [sys.executable, "-m", program, "--profile", "slurm", *quick]
    return [*snakemake, "--config", f"toolbox={toolbox()}", *config, *arguments]


def snakemake(clone: Path, *arguments: str, config=(), targets=TARGETS) -> tuple[int, str]:
    """Returns exit code and output of a run in the clone."""
    done = run_program(
        command(*arguments, config=config, targets=targets), cwd=clone, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout + done.stderr


def planned(clone: Path, config=()) -> dict[str, int]:
    """Returns the rules that a dry run would run, with their counts."""
    code, text = snakemake(clone, "-n", config=config)
    assert code == 0, text
    return rules_of(text)


def journal(clone: Path, rule: str, policy: str, subset: str) -> list[dict]:
    folder = clone / "results" / "progress" / rule / policy / subset
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
