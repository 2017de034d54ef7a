"""The texts in an exported task folder: settings, instruction, Dockerfile, scripts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swelab.records.task_records import Task
from swelab.tasks.forge.own_repository import SITE_FILE
from swelab.tasks.harbor.harbor_dockerfile import START
from swelab.tasks.harbor.harbor_folder import PREAMBLE

VERSION = "1.4"
"""Version of Harbor's schema for task.toml."""
AGENT_SECONDS = 3600
BUILD_SECONDS = 1800
TESTBED = "/testbed"
SANDBOX_PINS = Path(__file__).resolve().parents[2] / "envs" / "sandbox.txt"
_COMMIT = (
    "git init -q -b main && git add -A -f && GIT_AUTHOR_DATE=2000-01-01T00:00:00Z"
    " GIT_COMMITTER_DATE=2000-01-01T00:00:00Z git -c user.name=swelab -c user.email=swelab@localhost"
    " -c core.hooksPath=/dev/null commit -q -m base"
)
TEST = """#!/bin/bash
# Runs the tests of the task and writes /logs/verifier/reward.txt: see judge.py.
mkdir -p /logs/verifier
echo 0 >/logs/verifier/reward.txt
for python in /usr/local/bin/python3 /usr/bin/python3 /opt/miniconda3/bin/python3 python3; do
    if command -v "$python" >/dev/null; then exec "$python" -I "$(dirname "${BASH_SOURCE[0]}")/judge.py"; fi
done
echo "the image has no python3" >&2
exit 1
"""
SOLVE = f"""#!/bin/bash
# Applies the reference repair.
patch=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)/gold.patch
cd {TESTBED} && git apply --whitespace=nowarn "$patch"
"""


def instruction(task: Task) -> str:
    """Returns the instruction for the agent."""
    return PREAMBLE + task.problem_statement.strip() + "\n"


def dockerfile_of_archive(base: str) -> str:
    """Returns a Dockerfile that unpacks repository.tar, and commits its files as one commit without
    history."""
    return f"""FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends git patch && rm -rf /var/lib/apt/lists/*
COPY requirements.txt /tmp/requirements.txt
RUN pip install --no-cache-dir -r /tmp/requirements.txt && rm /tmp/requirements.txt && \\
    cd "$(python3 -c 'import site; print(site.getsitepackages()[0])')" && \\
    echo {TESTBED}/.swelab/site-packages >{SITE_FILE}
ADD repository.tar {TESTBED}/
WORKDIR {TESTBED}
RUN {_COMMIT}
"""


def dockerfile_of_image(image: str, command: str, prepared: bool) -> str:
    """Returns a Dockerfile that starts from a published image, and removes the commits after the task's
    start. command: the result of `image_history.start_command`. prepared: whether there are install steps."""
    before = f"RUN bash {START}/prepare.sh\n" if prepared else ""
    return f"FROM {image}\nWORKDIR {TESTBED}\nCOPY start {START}\n{before}RUN {command}\n"


def settings(task: Task, ours: Mapping[str, Any], seconds: int, large: bool, network: bool) -> str:
    """Returns the text of task.toml. ours: the table [metadata.swelab]. large: gives the container more CPU,
    memory and disk, for published images."""
    name = "".join(each if each.isalnum() or each in "._-" else "-" for each in task.instance_id)
    tables: dict[str, Mapping[str, Any]] = {
        "": {"schema_version": VERSION},
        "task": {"name": f"swelab/{name}", "description": f"Repair a fault in {task.repo}.",
                 "keywords": ["software-engineering", "bug-fix"]},
        "metadata": {"category": "software-engineering", "tags": ["swe", "bug-fix"]},
        "metadata.swelab": {"instance_id": task.instance_id, **ours},
        "verifier": {"timeout_sec": float(seconds + 120)},
        "agent": {"timeout_sec": float(AGENT_SECONDS)},
        "environment": {"build_timeout_sec": float(BUILD_SECONDS), "cpus": 2 if large else 1,
            "memory_mb": 8192 if large else 2048, "storage_mb": 20480 if large else 10240,
            "network_mode": "public" if network else "no-network"},
    }  # fmt: skip
    return "\n".join(_toml_table(name, values) for name, values in tables.items())


def _toml_table(name: str, values: Mapping[str, Any]) -> str:
    """Formats a TOML table. TOML strings, numbers and lists look as in JSON."""
    head = f"[{name}]\n" if name else ""
    written = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    return head + "".join(f"{key} = {text}\n".replace("\x7f", "\\u007f") for key, text in written.items())
