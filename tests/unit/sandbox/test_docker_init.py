"""The first process of a docker sandbox reads whole lines, even if they arrive in pieces."""

import re
from pathlib import Path

import swelab.sandbox
from tests.conftest import run_program

_LINES = 20_000
# A pause so short that many end within a line or just after one; the lines carry their numbers as exit codes.
_AROUND = r"""
exec {told}<> <(:)
nonce=N input=1 now=0 ends=20 limit=
clock() { :; }
judge() { :; }
printf() { pause=0.0003; }
%(follow)s
for ((i = 1; i <= %(lines)d; i++)); do
    for ((j = 0; j < RANDOM %% 60; j++)); do :; done
    echo "N exit $i ." >&"$told"
done &
for ((seen = 1; seen <= %(lines)d; seen++)); do
    follow
    [[ $code == "$seen" ]] || { echo "line $seen was read as: $code"; exit 1; }
done
"""


def test_no_line_is_merged_with_the_next_one():
    script = Path(swelab.sandbox.__file__).with_name("docker_init.sh").read_text()
    follow = re.search(r"^follow\(\) \{.*?^\}$", script, re.M | re.S)
    assert follow
    done = run_program(["bash", "-c", _AROUND % {"follow": follow[0], "lines": _LINES}], timeout=600)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
