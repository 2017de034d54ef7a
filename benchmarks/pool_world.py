"""An exec server without a container engine, for the pool's benchmark and for tests of its servers.

Its sandboxes are folders, and its commands are processes without any isolation. So only send commands that
you wrote. The server itself is the real one.
"""

import argparse
import contextlib
import logging
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from benchmarks.pool_commands import Commands
from swelab.http.run_server import run
from swelab.http.sockets import address, listen
from swelab.pool.container_host import Host
from swelab.pool.exec_server import node_app
from swelab.pool.host_sandbox import HostLimits
from swelab.pool.image_allowlist import AllowedImages
from swelab.sandbox.docker_backend import DockerBackend
from swelab.sandbox.protocol import ExecResult, Limits, PathRefused, SandboxLost
from swelab.sandbox.remote_protocol import find_token


class Folder:
    """A sandbox that is a folder on the host."""

    def __init__(self, root: Path, limits: Limits, commands: Commands) -> None:
        self.folder, self.limits, self.commands = root / secrets.token_hex(32), limits, commands
        self.folder.mkdir()

    def containers(self) -> list[str]:
        """Returns the name of the sandbox's folder."""
        return [self.folder.name]

    def exec(self, command: str, *, limits: Limits, env: Mapping[str, str] = {}) -> ExecResult:
        """See protocol.Sandbox.exec. Raises SandboxLost."""
        if not self.folder.exists():
            raise SandboxLost("the sandbox is closed")
        here = command.replace("/tmp/.", f"{self.folder}/tmp/.").replace("/testbed", str(self.folder))
        result, output = self.commands.run(here, self.folder, dict(env), limits.wall_seconds)
        late = result["late"]
        code = 124 if late else result["returncode"]
        return ExecResult(
            output[: limits.output_bytes], code, late, 0, "wall" if late else "", result["seconds"]
        )

    def put(self, path: str, data: bytes) -> None:
        """Write a file."""
        (self.folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path.lstrip("/")).write_bytes(data.replace(b"/testbed", bytes(self.folder)))

    def get(self, path: str, max_bytes: int) -> bytes:
        """Read a file."""
        with open(self.folder / path.lstrip("/"), "rb") as stream:
            data = stream.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise PathRefused(f"{path!r} has more than {max_bytes} bytes")
        return data

    def fill(self, chunks: Iterator[bytes]) -> None:
        """Unpack a tar stream."""
        archive = self.folder / ".tar"
        with archive.open("wb") as stream:
            stream.writelines(chunks)
        shutil.unpack_archive(archive, self.folder, "tar")
        archive.unlink()

    def close(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Folders:
    """Replaces a DockerBackend."""

    address = "(folders)"

    def __init__(self, root: Path) -> None:
        self.root, self.engine, self.api, self.commands = root, self, self, Commands()
        root.mkdir(parents=True, exist_ok=True)
        for left in root.iterdir():  # a folder that an earlier process left
            shutil.rmtree(left, ignore_errors=True)

    def answers(self) -> bool:
        """Returns True: the engine always responds."""
        return True

    def clear(self) -> None:
        """Does nothing: there is nothing to remove."""

    def start_empty(self, image: Any, limits: Limits, forgets: bool = False) -> Folder:
        """Starts a sandbox without files."""
        return Folder(self.root, limits, self.commands)

    def start(self, tree: None, image: Any, limits: Limits, forgets: bool = False) -> Folder:
        """Starts a sandbox with a copy of the folder `image`, and ignores which image is requested.

        The folder `image` is next to the folder of the sandboxes.
        """
        box = Folder(self.root, limits, self.commands)
        shutil.copytree(self.root.parent / "image", box.folder, dirs_exist_ok=True)
        return box

    def request(self, what: str) -> "contextlib.AbstractContextManager[None]":
        """Returns a context that does nothing."""
        return contextlib.nullcontext()

    def inspect_image(self, name: str) -> dict[str, Any]:
        """Describes an image. Every name is treated as an existing image."""
        return {"Id": f"sha256:{'0' * 64}", "RepoTags": [name]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True, help="where the folders are; emptied first")
    parser.add_argument("--images", type=Path, help="file of allowed image patterns, one per line")
    parser.add_argument("--max-containers", type=int, default=64)
    parser.add_argument("--memory-gib", type=float, default=200)
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    limits = HostLimits(args.max_containers, int(args.memory_gib * (1 << 30)))
    host = Host(cast(DockerBackend, Folders(args.root)), limits, AllowedImages(args.images))
    listener = listen("127.0.0.1", args.port)
    line = f"exec server at {address(listener, False)}"
    run(node_app(host, find_token(args.token)), listener, on_ready=lambda: print(line, flush=True))


if __name__ == "__main__":
    main()
