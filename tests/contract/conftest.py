"""A sandbox to attack, on each backend that the test file names in BACKENDS, or else on bubblewrap.

`make test` uses bubblewrap, and docker for tests marked on_docker. `make test-full` uses the other backends.
"""

import os
import re
import shutil
import signal
import socket
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from swelab.records import read_json
from swelab.sandbox import Image, open_backend
from swelab.sandbox.scratch import PREFIX
from swelab.tasks.checkout import RepoStore
from tests.conftest import ROOT
from tests.contract import engine as engines
from tests.contract import pool_servers
from tests.contract.attacks import PATIENCE, SHORT, processes_with, program


def pytest_generate_tests(metafunc):
    if "kind" in metafunc.fixturenames:
        alone = "alone" in metafunc.fixturenames
        kinds = ["bubblewrap"] if alone else getattr(metafunc.module, "BACKENDS", ["bubblewrap"])
        gate = {"bubblewrap", *(["docker"] if metafunc.definition.get_closest_marker("on_docker") else [])}
        marked = [pytest.param(kind, marks=() if kind in gate else pytest.mark.full) for kind in kinds]
        metafunc.parametrize("kind", marked, scope="module")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A source tree with as few files as possible."""
    folder = tmp_path_factory.mktemp("tree")
    (folder / "a.txt").write_text("hello\n")
    return folder


@pytest.fixture
def task(task):
    """The task with a timeout that suffices on any machine."""
    return task | {"test_timeout": int(PATIENCE)}


@pytest.fixture
def dead_port():
    """A port of this machine on which no server listens. It is reserved until the test uses it or ends."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def store(repos_dir, tmp_path):
    """Checkouts of the repositories that rules made."""
    return RepoStore(repos_dir, tmp_path / "trees")


@pytest.fixture
def place_of_rollouts(task, store, backend, tmp_path):
    """Everything that a rollout needs except its model."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return task, store, backend, scratch


@pytest.fixture(scope="session")
def image_record(backend, pytestconfig):
    """The path of the record of the sandbox image."""
    reason = engines.why_not()
    if reason:
        pytest.skip(reason)
    return engines.sandbox_image(Path(pytestconfig.cache.mkdir("swelab-sandbox-image")), backend.toolbox.path)


@pytest.fixture(scope="session")
def image(image_record):
    """The sandbox image."""
    record = read_json(image_record)
    return Image(record["name"], record["digest"], Path(image_record).parent / record["folder"])


@contextmanager
def environment(**variables):
    """Sets environment variables during the block."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, str(value))
        yield


@pytest.fixture(scope="session")
def running_engine(image_record):
    """A container engine that only tests use."""
    running = engines.start_engine()
    yield running
    engines.engine_end(running)


@pytest.fixture(scope="module")
def engine(running_engine, image_record):
    """The container engine.

    Until the tests of a file end, DOCKER_HOST names it. Other files do not see this.
    """
    with environment(DOCKER_HOST=running_engine.address, SWELAB_SANDBOX_IMAGE=image_record):
        yield running_engine


@pytest.fixture(scope="session")
def running_pool(running_engine, image_record, tmp_path_factory):
    """A pool with one host."""
    folder = tmp_path_factory.mktemp("pool")
    with environment(SWELAB_SANDBOX_IMAGE=image_record):
        host = pool_servers.exec_server(running_engine, folder / "host", "--max-containers", 64)
    server = pool_servers.pool_server([host], folder / "pool")
    yield server
    server.stop()
    host.stop()


@pytest.fixture(scope="module")
def pool(running_pool, engine):
    """The pool. During the tests of a file the environment variables lead to the pool and its engine."""
    with environment(SWELAB_POOL=running_pool.url, SWELAB_POOL_TOKEN_FILE=running_pool.token_file):
        yield running_pool


class Place:
    """A backend, the image of its sandboxes if it needs one, and how the host sees the sandboxes."""

    def __init__(self, backend, image=None, engine=None):
        self.backend, self.image, self.engine = backend, image, engine
        self._others = self._held()

    def _held(self):
        return self.engine.containers() + self.engine.volumes() if self.engine else []

    def start(self, tree, **options):
        return self.backend.start(tree, image=self.image, **options)

    def another(self):
        """Opens the same backend again, which removes what earlier runs left."""
        return open_backend(self.backend.name)

    def murder(self, box, sleep):
        """Kills a sandbox that runs `sleep` from outside."""
        if self.engine:
            self.engine.docker("rm", "--force", box.containers()[0])
        else:
            outer = [pid for pid in processes_with(sleep) if program(pid) == "bwrap"]
            os.kill(outer[0], signal.SIGKILL)

    def left_of(self, box):
        """Returns what closed sandboxes have left. The engine may also hold sandboxes of other test files."""
        if self.engine:
            return [each for each in self._held() if each not in self._others]
        return [path for path in (box._scratch.path,) if path.exists()]

    def left_by(self, pid, scratch, ours):
        """Returns what an ended process has left. ours: a sandbox of this process, which is not counted."""
        if self.engine:
            return [c for c in self.engine.containers() if c != ours.containers()[0]]
        folders = [path for path in scratch.glob(PREFIX + "*") if (path / "testbed").exists()]
        return [path for path in folders if path != ours._scratch.path]


@pytest.fixture(scope="module")
def place(kind, backend, request):
    """The place in which sandboxes of this kind are made."""
    if kind == "docker":
        running = request.getfixturevalue("engine")
        return Place(open_backend("docker"), engine=running)
    if kind == "remote":
        request.getfixturevalue("pool")
        return Place(open_backend("remote"), engine=request.getfixturevalue("engine"))
    return Place(backend)


@pytest.fixture
def sandbox(place, tree):
    """A new sandbox with short limits."""
    with place.start(tree, limits=SHORT) as opened:
        yield opened


@pytest.fixture
def trainer(tmp_path):
    """Replaces Python: prints the command line of snakemake, and runs anything else with Python.

    The recipes beside it start from weights that exist.
    """
    path = tmp_path / "python"
    path.write_text(
        f'#!/bin/bash\n[ "$1 $2" = "-m snakemake" ] || exec {sys.executable} "$@"\nshift 2\necho "$@"\n'
    )
    path.chmod(0o755)
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for recipe in (*(tmp_path / "configs/rl").iterdir(), *(tmp_path / "configs/policies").iterdir()):
        text = recipe.read_text()
        for name in re.findall(r"(?m)^(?:start|weights): models/(\S+)", text):
            (tmp_path / "models" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "models" / name / "config.json").write_text("{}")
        recipe.write_text(text.replace(": models/", f": {tmp_path}/models/"))
    return path
