"""An environment for Harbor's own program, made of bubblewrap. Only Harbor's Python imports this module.

It starts in the state that a task folder's environment/ describes, without Docker and without network.
TOOLBOX names the folder of the Python with pytest, which a real image would contain.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

TOOLBOX = Path(os.environ["TOOLBOX"])
FOLDERS = ("testbed", "tests", "solution", "logs/verifier", "logs/agent", "logs/artifacts", "root", "tmp")
SYSTEM = """--unshare-all --die-with-parent --clearenv --ro-bind /usr /usr --ro-bind /etc /etc --proc /proc
--dev /dev --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --setenv HOME /root
--setenv PATH /opt/toolbox/bin:/usr/bin:/bin""".split()


class Bubblewrap(BaseEnvironment):
    """A container in bubblewrap. Each folder that Harbor writes to is a folder of the host."""

    @staticmethod
    def type():
        return "bubblewrap"

    @classmethod
    def resource_capabilities(cls):
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    @property
    def capabilities(self):
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self):
        assert (self.environment_dir / "Dockerfile").is_file()

    async def start(self, force_build):
        self.root = Path(tempfile.mkdtemp(prefix="swelab-harbor-"))
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True)
        shutil.unpack_archive(self.environment_dir / "repository.tar", self.root / "testbed")
        commit = "git init -q -b main && git add -A -f && git -c user.name=a -c user.email=a commit -qm base"
        subprocess.run(commit, shell=True, check=True, cwd=self.root / "testbed")

    async def stop(self, delete):
        shutil.rmtree(self.root)

    def _here(self, path):
        return self.root / str(path).lstrip("/")

    async def upload_file(self, source_path, target_path):
        shutil.copy2(source_path, self._here(target_path))

    async def upload_dir(self, source_dir, target_dir):
        shutil.copytree(source_dir, self._here(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path, target_path):
        shutil.copy2(self._here(source_path), target_path)

    async def download_dir(self, source_dir, target_dir):
        shutil.copytree(self._here(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        words = ["bwrap", *SYSTEM]
        for name in {each.partition("/")[0] for each in FOLDERS}:
            words += ["--bind", self.root / name, f"/{name}"]
        python = TOOLBOX / "bin/python"
        places = {"/opt/toolbox": TOOLBOX, str(TOOLBOX): TOOLBOX}
        for prefix in (python.readlink().parents[1], python.resolve().parents[1]):
            places |= {} if prefix.is_relative_to("/usr") else {str(prefix): prefix.resolve()}
        for place, path in places.items():
            words += ["--ro-bind", path, place]
        for name, value in (env or {}).items():
            words += ["--setenv", name, value]
        words += ["--chdir", cwd or "/testbed", "bash", "-c", command]
        done = await asyncio.to_thread(
            subprocess.run, [*map(str, words)], capture_output=True, text=True, timeout=timeout_sec
        )
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)
