"""Sandboxes by apptainer, for cluster nodes that have no other engine.

Each command is one `apptainer exec`. It makes the root file system from an image file (.sif) or an
unpacked image. It must run without its set-user-id mode, as it does by default. The code of the
bubblewrap backend makes private folders, applies limits and ends commands.
"""

import errno
import os
import shlex
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from swelab.sandbox import image_root, isolation, rootfs, sandbox_image
from swelab.sandbox.bubblewrap import BubblewrapBackend, BubblewrapSandbox
from swelab.sandbox.bwrap_process import Launch, output_pipe
from swelab.sandbox.protocol import DEFAULT_LIMITS, WORKDIR, BackendMissing, Image, ImageMissing, Limits
from swelab.sandbox.requirements import check_kernel, tool
from swelab.sandbox.resource_limits import DiskMeter
from swelab.sandbox.scratch import UserId, copy_tree, prune, runnable_base, spare_uids

_ETC = ("passwd", "group", "gitconfig", "hosts", "hostname", "nsswitch.conf")
_COPY_SECONDS = 600
_OWN = Path("/")  # stands for the image's repository, where a tree is expected
_TARGET = "/mnt"  # copy of the image's repository, as a path in the sandbox


def command_line(
    image: Path, folder: Path, user: UserId | None, repository: str = WORKDIR, own: str = WORKDIR
) -> list[str]:
    """Returns apptainer's arguments before the command.

    folder: private files of one sandbox. The sandbox shows the folder's testbed/ at the path `repository`. It
    shows the same testbed/ at the path `own`, in place of the image's files.
    """
    rights = ["--userns", "--no-privs"]
    if user:
        rights = [f"--security=uid:{user.value}", f"--security=gid:{user.value}", "--drop-caps=all"]
    places = [repository] if image_root.is_covered(own) else [repository, own]
    binds = [*((folder / "testbed", place, "rw") for place in places), (folder / "tmp", "/tmp", "rw")]
    binds += [(folder / "home", rootfs.HOME, "rw")]
    binds += [(folder / "etc" / name, f"/etc/{name}", "ro") for name in _ETC]
    arguments = ["exec", *isolation.APPTAINER, *rights]
    for source, inside, mode in binds:
        arguments += ["--bind", f"{source}:{inside}:{mode}"]
    return [*arguments, "--pwd", repository, str(image)]


class ApptainerLaunch(Launch):
    """Like `Launch`, for apptainer. The exit code of apptainer is the exit code of the command."""

    def _spawn(
        self, bwrap: Sequence[str], arguments: list[str], program: bytes, command: Sequence[bytes]
    ) -> None:
        with ExitStack() as ours, ExitStack() as theirs:
            self.gate, inner = socket.socketpair()
            ours.callback(self.gate.close)
            theirs.callback(inner.close)
            self.output, output_end = output_pipe(ours, theirs)
            self._process = subprocess.Popen(
                [*map(os.fsencode, [*bwrap, *arguments]), *command],
                stdin=inner.fileno(),
                stdout=output_end,
                stderr=output_end,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(Path.home())},
                cwd="/",
                start_new_session=True,
            )
            self._files = ours.pop_all()

    def _code(self) -> int | None:
        code = self._process.returncode
        return code if code >= 0 else None  # a signal from outside ended apptainer itself


class ApptainerSandbox(BubblewrapSandbox):
    """See `protocol.Sandbox`."""

    def __init__(
        self,
        backend: "ApptainerBackend",
        tree: Path | None,
        image: Image | None,
        limits: Limits,
        forgets: bool,
    ) -> None:
        self._image = image or sandbox_image.recorded_image()
        self._path = image_path(self._image)
        super().__init__(backend, tree, image, limits, forgets)

    def _own_tree(self, image: Image | None) -> Path:
        if image is None:
            raise ValueError("a sandbox needs a tree or an image")
        return _OWN  # `_copy_own` copies inside the sandbox, since the host cannot read an image file

    def _fill(self, tree: Path) -> None:
        folder = self._scratch.path
        rootfs.write_etc(folder, *(self._owner if self._user else (1000, 1000)))
        if self._user:
            for name in ("testbed", "tmp", "home"):
                os.chown(folder / name, *self._owner)
        declared = image_root.declared_environment(self._path) if self._path.is_dir() else {}
        own = {"PATH": image_root.DEFAULT_PATH, **declared, "HOME": rootfs.HOME}
        self._environment = rootfs.ENVIRONMENT | own
        self._meter = DiskMeter(folder)
        if tree is _OWN:
            self._arguments = command_line(self._path, folder, self._user, _TARGET)
            self._copy_own()
        else:
            copy_tree(tree, folder / "testbed", self._owner if self._user else None)
        self._arguments = command_line(self._path, folder, self._user, own=self._image.workdir)
        self._meter = DiskMeter(folder)

    def _copy_own(self) -> None:
        source = shlex.quote(self._image.workdir)
        limits = Limits(wall_seconds=_COPY_SECONDS, cpu_seconds=_COPY_SECONDS)
        copy = f"cd {source} || exit 3; exec cp -dR --preserve=mode,timestamps -- . {_TARGET}"
        done = self.exec(copy, limits=limits)
        if done.returncode == 3:
            raise ImageMissing(f"image {self._image.name} has no folder {self._image.workdir}")
        if done.returncode:
            full = b"No space left" in done.output or done.limit == "disk"
            code = errno.ENOSPC if full else errno.EIO
            raise OSError(code, f"copying to the sandbox failed: {os.strerror(code)}")

    def _launch(self, inner: list[bytes]) -> Launch:
        return ApptainerLaunch(self._backend.enter(), self._arguments, b"", inner)


def image_path(image: Image) -> Path:
    """Returns the path of the image file or unpacked image. Raises ImageMissing."""
    if image.folder is None or not image.folder.exists():
        raise ImageMissing(f"image {image.name} ({image.digest}) is not at {image.folder}")
    return image.folder


class ApptainerBackend(BubblewrapBackend):
    """See `protocol.Backend`."""

    name = "apptainer"

    def __init__(self) -> None:
        check_kernel()
        program = tool("apptainer")
        if program is None:
            raise BackendMissing("no program `apptainer` on this machine")
        self.uids = spare_uids()
        self.base = runnable_base()
        self.prepare(program)
        prune(self.base)

    def mounter(self) -> None:
        """Returns None, since all sandboxes of apptainer share one file system."""

    def root_of(self, image: Image | None) -> None:
        """Does nothing, since apptainer uses images as they are."""

    def start(
        self,
        tree: Path | None,
        *,
        image: Image | None = None,
        limits: Limits = DEFAULT_LIMITS,
        forgets: bool = False,
    ) -> ApptainerSandbox:
        """Starts a fresh sandbox; see `protocol.Backend.start`.

        An image is a .sif file or an unpacked root.
        """
        return ApptainerSandbox(self, Path(tree) if tree else None, image, limits, forgets)
