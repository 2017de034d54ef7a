"""Writes the hashes of the pinned packages to envs/*.txt again, after a version was changed by hand.

`add_hashes.py FILE...` Versions stay unchanged, because several packages require other versions than they
get. A version that Debian 12's Python cannot install is refused. Only files that swelab can use get a hash:
wheels for Linux on x86_64 and aarch64. Where such a wheel is there, the wheel for any machine and the source
are left out: an index that has only those would give a package without its compiled part.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

PLATFORMS = ("x86_64-manylinux_2_36", "aarch64-manylinux_2_36")  # Debian 12's
UV = os.environ.get("UV") or str(Path(__file__).resolve().parents[1] / ".venv-uv/bin/uv")


def main() -> None:
    """Exits with 1 after a line that says what is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="such as envs/cpu.txt")
    try:
        for file in parser.parse_args().files:
            write_hashes(file)
    except OSError as error:
        sys.exit(f"error: {error}")


def write_hashes(file: Path) -> None:
    """Writes the hashes of a file's pins again."""
    lines = file.read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    pins = [line.removesuffix("\\").strip() for line in lines if re.match(r"\w", line)]
    pins = [pin.partition(" --hash")[0] for pin in pins]
    hashes: dict[str, set[str]] = {}
    for platform in PLATFORMS:
        for package in resolution(pins, platform):
            digests = {each["hashes"]["sha256"] for each in usable(package)}
            hashes.setdefault(package["name"], set()).update(digests)
    written = [
        " \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(hashes[name(pin)]))])
        for pin in pins
    ]
    file.write_text("\n".join([*comments, *written]) + "\n")


def resolution(pins: list[str], platform: str) -> list[dict[str, Any]]:
    """Returns what the package index has of each pin for a platform, as in a pylock.toml."""
    compile = [UV, "pip", "compile", "--quiet", "--no-config", "--no-deps", "--no-header"]
    wanted = ["--python-version", "3.11.2", "--python-platform", platform, "--format", "pylock.toml", "-"]
    done = subprocess.run([*compile, *wanted], input="\n".join(pins), capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    packages: list[dict[str, Any]] = tomllib.loads(done.stdout)["packages"]
    return packages


def usable(package: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a package's wheels with compiled parts, or else its other wheels, or else its source."""
    wheels = package.get("wheels", [])
    compiled = [wheel for wheel in wheels if not wheel["url"].endswith("-any.whl")]
    return compiled or wheels or [package["sdist"]]


def name(pin: str) -> str:
    """Returns the normal form of the name in a pin."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[=]", pin)[0]).lower()


if __name__ == "__main__":
    main()
