"""Can code in one sandbox leave a bit for code in another one? Each way that is known, tried.

    .venv/bin/python -m benchmarks.channels [--backends NAME ...] [--only WORD ...] [--bits 12]

For each channel and random bit, one sandbox writes the bit and another one reads a number: after the first
has closed (`after`, as an earlier grading and a later question), or while it lives (`beside`, as two gradings
at once). Prints how many bits the best threshold reads right: half of them is chance, all of them is an open
channel. The writing sandbox forgets, as one in which tests run (`Backend.start`). docker needs an engine.
"""

import argparse
import random
import secrets
import tempfile
from pathlib import Path

from benchmarks.channel_probes import PROBES, Probe
from swelab.console.terminal import run_script
from swelab.sandbox import Backend, Limits, Sandbox, open_backend

LIMITS = Limits(processes=256)
ROW = "{:<11} {:<8} {:<46} {:>9}  {}"


def number(sandbox: Sandbox, code: str) -> float | None:
    """What the code prints; None where it fails."""
    sandbox.put("probe.py", f"{code}\n".encode())
    done = sandbox.exec("python probe.py")
    return float(done.output.split()[-1]) if done.returncode == 0 else None


def read_after(backend: Backend, tree: Path, write: str, read: str) -> float | None:
    """The number that a sandbox reads when the one that wrote is closed."""
    with backend.start(tree, limits=LIMITS, forgets=True) as box:
        if number(box, write + "\nprint(0)") is None:
            return None
    with backend.start(tree, limits=LIMITS) as box:
        return number(box, read)


def read_beside(backend: Backend, tree: Path, write: str, read: str) -> float | None:
    """The number that a sandbox reads while the code that wrote still runs in another one."""
    with backend.start(tree, limits=LIMITS) as reader, backend.start(tree, limits=LIMITS) as writer:
        writer.put("probe.py", f"{write}\nprint('ready', flush=True)\nif goes_on: hold()".encode())
        with writer.session("python probe.py") as held:
            if not held.say(None, until=b"ready\n", timeout=30).output.endswith(b"ready\n"):
                return None
            return number(reader, read)


def tried(backend: Backend, probe: Probe, when: str, bits: int) -> tuple[int, int]:
    """(bits read right by the best threshold, bits tried); (0, 0) where a part of it is refused."""
    found = []
    with tempfile.TemporaryDirectory() as empty:
        for place in range(bits):
            bit = place % 2 if place < 2 else random.randrange(2)
            facts = f"bit, once = {bit}, {secrets.token_hex(6)!r}\n"
            way = read_after if when == "after" else read_beside
            seen = way(backend, Path(empty), facts + probe.write, facts + probe.read)
            if seen is None:
                return 0, 0
            found.append((seen, bit))
    right = max(sum((seen >= limit) == bit for seen, bit in found) for limit, _ in found)
    other = max(sum((seen < limit) == bit for seen, bit in found) for limit, _ in found)
    return max(right, other), bits


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backends", nargs="+", default=["bubblewrap"])
    parser.add_argument("--only", nargs="+", default=[], help="parts of names of channels")
    parser.add_argument("--bits", type=int, default=12)
    args = parser.parse_args()
    for name in args.backends:
        backend = open_backend(name)
        for probe in PROBES:
            if args.only and not any(word in probe.name for word in args.only):
                continue
            for when in probe.when.split():
                right, of = tried(backend, probe, when, args.bits)
                said = "refused" if not of else "open" if right >= 0.9 * of else "-"
                print(ROW.format(name, when, probe.name, f"{right}/{of}", said), flush=True)
    return 0


if __name__ == "__main__":
    run_script(main)
