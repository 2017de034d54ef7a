"""Small real images made of this machine's programs."""

import io
import re
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path

from tests.contract.registry import entry, layer

PROGRAMS = (
    *"bash sh git find sort comm cksum cut head sed grep rm mv mkdir ls".split(),
    *("cat", "readlink", "mktemp", "cp", "wc", "env", "sleep", "head", "tail", "true", "setpriv"),
    *("chmod", "chown", "ln", "stat", "tar"),
)


@cache
def programs_layer() -> bytes:
    """Returns a layer with this machine's bash, git and coreutils, and the libraries that they load."""
    files: dict[str, Path] = {}
    for name in PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        assert found, name
        files[f"usr/bin/{name}"] = Path(found).resolve()
        said = subprocess.run(["ldd", found], capture_output=True, text=True).stdout
        for path in re.findall(r"(/\S+) \(0x", said):
            files[f"usr{path.removeprefix('/usr')}"] = Path(path).resolve()
    files |= {
        str(path).lstrip("/"): path for path in Path("/usr/lib/locale/C.utf8").rglob("*") if path.is_file()
    }
    entries: list = [
        entry(f"{name}", type=tarfile.SYMTYPE, linkname=f"usr/{name}") for name in ("bin", "lib", "lib64")
    ]
    entries += [
        entry("etc", type=tarfile.DIRTYPE, mode=0o755),
        entry("tmp", type=tarfile.DIRTYPE, mode=0o1777),
    ]
    entries += [(entry("etc/passwd"), b"root:x:0:0:root:/root:/bin/bash\n")]
    for name, path in sorted(files.items()):
        entries.append((entry(name, mode=0o755), path.read_bytes()))
    return layer(*entries)


def folder_layer(folder: Path, place: str) -> bytes:
    """Returns a layer that contains `folder` at `place`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        tar.add(folder, place)
    return out.getvalue()
