"""Provides our sandboxes as an environment to the program mini-swe-agent, which imports this class by
name."""

import contextlib
import os
import tempfile
import threading
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from swelab.agents.mini import SandboxEnvironment
from swelab.agents.mini_benchmark import PRELUDE
from swelab.configs.kinds.scaffold import Limits as ScaffoldLimits
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.chat.text_model import Settings
from swelab.records import InputError, Record
from swelab.records.task_records import Task
from swelab.sandbox import Limits, open_backend
from swelab.tasks.checkout import RepoStore
from swelab.tasks.image_history import prepare
from swelab.tasks.patch_application import git
from swelab.tasks.task_images import task_images
from swelab.tasks.task_rows import read_tasks

OPEN = "swelab-open "
"""Prefix of the program's startup command. Only this command says which instance the environment is for."""
LARGE = {"cpu_seconds": 1200, "memory_bytes": 10 << 30, "processes": 1024, "file_bytes": 2 << 30}
_lock = threading.Lock()
_tasks: dict[str, dict[str, Task]] = {}


class ProgramEnvironment:
    """Implements mini-swe-agent's Environment protocol. The command OPEN starts the sandbox.

    tasks: path of the subset's JSON file. repos: folder of repository archives. images: path of a record of
    pulled images, or "".
    """

    def __init__(
        self,
        *,
        tasks: str,
        repos: str,
        images: str = "",
        timeout: float = 60,
        env: dict[str, str] | None = None,
        **_: Any,
    ):
        self.config = Settings()
        self._given = (tasks, Path(repos), Path(images) if images else None)
        self._timeout, self._variables = timeout, env or {}
        self._stack = ExitStack()
        self._inner: SandboxEnvironment | None = None
        # The program calls no `cleanup`. Unlike `__del__`, a finalizer also runs before the threads end.
        weakref.finalize(self, _close, self._stack)

    def execute(self, action: Record, cwd: str = "") -> Record:
        """Runs a command. Raises Submitted, SandboxError, and InputError if there is no such task."""
        command = action["command"]
        if self._inner is None:
            if not command.startswith(OPEN):
                raise InputError("no sandbox yet", expected=f"the startup command {OPEN}<instance id>")
            self._inner = self._open(command.removeprefix(OPEN).strip())
            return {"output": "", "returncode": 0, "exception_info": ""}
        return self._inner.execute(action, cwd)

    def _open(self, name: str) -> SandboxEnvironment:
        path, repos, record = self._given
        task = _task(path, name)
        backend, limits = open_backend(), Limits(wall_seconds=self._timeout, **LARGE)
        if not task.in_image:
            scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="swelab-")))
            RepoStore(repos, scratch / "repos").checkout(task, scratch / "tree")
            base = git(scratch / "tree", "rev-parse", "HEAD").stdout.decode().strip()
            sandbox = self._stack.enter_context(backend.start(scratch / "tree", limits=limits))
        else:
            image = task_images([task], record)[name]
            sandbox = self._stack.enter_context(backend.start(None, image=image, limits=limits))
            base = prepare(sandbox, task)
        loop = MiniLoop(
            system_template="",
            instance_template="",
            observation_template="",
            action_regex=r"\A(.*)\Z",
            prelude=PRELUDE,
            environment=self._variables,
            submission="printed",
            limits=ScaffoldLimits(wall_seconds=self._timeout, **LARGE),
        )
        return SandboxEnvironment(sandbox, base, loop)

    def get_template_vars(self, **kwargs: Any) -> Record:
        """Returns the variables for prompts, without facts about this machine except its architecture."""
        return {"system": "Linux", "release": "", "version": "", "machine": os.uname().machine, **kwargs}

    def serialize(self) -> Record:
        """Returns the facts about the environment for the trajectory: the name of the sandbox protocol."""
        return {"info": {"config": {"environment_type": "swelab.sandbox.Sandbox"}}}

    def cleanup(self) -> None:
        """Ends the sandbox."""
        self._stack.close()


def _close(stack: ExitStack) -> None:
    with contextlib.suppress(Exception):
        stack.close()


def _task(path: str, name: str) -> Task:
    with _lock:
        if path not in _tasks:
            _tasks[path] = {task.instance_id: task for task in read_tasks(path)}
        if name not in _tasks[path]:
            raise InputError(f"no task {name}", path)
        return _tasks[path][name]
