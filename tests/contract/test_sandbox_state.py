"""Files of a sandbox: which last, which are separate, and what planted links and pipes cannot do."""

import gc
import os
import threading
from pathlib import Path

import pytest

from swelab.sandbox import Limits, PathRefused
from tests.contract.attacks import PATIENCE, SHORT, text

pytestmark = pytest.mark.real
BACKENDS = ("bubblewrap", "docker", "remote")


@pytest.mark.on_docker
def test_links_and_pipes_planted_at_our_paths(sandbox):
    sandbox.exec(
        "ln -s /etc/passwd out; ln -s / root; mkfifo pipe; ln -s /proc/self/fd/0 fd; mkdir tests; "
        "ln -s ../../../../../../etc tests/up; ln -s nothing dangling"
    )
    read = "out root/etc/passwd pipe fd tests/up/passwd tests dangling ../testbed/a.txt".split()
    written = "out root/tmp/x pipe tests/up/x /tmp/../etc/x dangling".split()
    refused = []

    def reach():
        for path in read:
            with pytest.raises(PathRefused):
                sandbox.get(path)
            refused.append(path)
        for path in written:
            with pytest.raises(PathRefused):
                sandbox.put(path, b"x")
            refused.append(path)

    reaching = threading.Thread(target=reach, daemon=True)  # reading a pipe would block forever
    reaching.start()
    reaching.join(PATIENCE)
    assert refused == [*read, *written]
    sandbox.exec("head -c 1000 /dev/zero > long")
    with pytest.raises(PathRefused):
        sandbox.get("long", max_bytes=999)


@pytest.mark.on_docker
def test_files_keep_their_age(sandbox, tree):
    """Files of the same age outside have the same age inside."""
    assert text(sandbox.exec("stat -c %Y a.txt")) == f"{int((tree / 'a.txt').stat().st_mtime)}\n"


@pytest.mark.full
def test_put_and_get_under_a_racing_command(sandbox):
    """A command replaces a folder by a link to the host while we write and read.

    We used to follow that link.
    """
    swap = "while :; do mv -T real t; mv -T link real; mv -T real link; mv -T t real; done"
    limits, seen = {"limits": Limits(wall_seconds=1.5, cpu_seconds=30)}, set()
    for _ in range(20):
        sandbox.exec("rm -rf real link t; mkdir real; ln -s /etc link; echo ok > real/passwd")
        swapper = threading.Thread(target=sandbox.exec, args=(swap,), kwargs=limits)
        swapper.start()
        while swapper.is_alive():
            try:
                sandbox.put("real/passwd", b"ok\n")
                seen.add(sandbox.get("real/passwd"))
            except (PathRefused, FileNotFoundError):
                seen.add(None)
        swapper.join()
        if b"ok\n" in seen:
            break
    assert seen <= {b"ok\n", None} and b"ok\n" in seen
    assert Path("/etc/passwd").read_bytes() != b"ok\n"


@pytest.mark.on_docker
def test_state_persists_between_commands_and_belongs_to_the_sandbox(place, tree, sandbox):
    sandbox.exec("echo one > kept; echo two > /tmp/kept; echo three > ~/kept; cd /tmp; export GONE=1")
    assert text(sandbox.exec("cat kept /tmp/kept ~/kept; pwd; echo $GONE")) == "one\ntwo\nthree\n/testbed\n\n"
    with place.start(tree) as other:
        assert text(other.exec("ls -A . /tmp ~")) == ".:\na.txt\n\n/home/agent:\n\n/tmp:\n"
    assert (tree / "a.txt").read_text() == "hello\n" and len(list(tree.iterdir())) == 1


@pytest.mark.on_docker
def test_git_and_pytest_work_on_the_private_copy(sandbox):
    sandbox.put("test_x.py", b"def test_x(tmp_path):\n    assert tmp_path.exists()\n")
    result = sandbox.exec(
        "git init -q . && git add -A && git commit -qm x && git status --short && git log --format=%an"
    )
    assert (text(result), result.returncode) == ("agent\n", 0)
    for program in ("python -m pytest", "pytest"):
        result = sandbox.exec(f"{program} -qq --tb=no -p no:cacheprovider test_x.py")
        assert (text(result).rstrip().endswith("[100%]"), result.returncode) == (True, 0), text(result)


@pytest.mark.on_docker
def test_a_patch_of_five_megabytes(sandbox):
    sandbox.exec("git init -q . && git add -A && git commit -qm x")
    lines = "".join(f"+line {number} of a long file\n" for number in range(190_000))
    patch = f"--- /dev/null\n+++ b/long.txt\n@@ -0,0 +1,190000 @@\n{lines}".encode()
    assert len(patch) > 5_000_000
    sandbox.put("/tmp/long.patch", patch)
    limits = Limits(wall_seconds=PATIENCE, output_bytes=8 << 20)
    result = sandbox.exec(
        "git apply /tmp/long.patch && git add -A && git diff --cached > /tmp/diff && cat /tmp/diff",
        limits=limits,
    )
    assert result.returncode == 0, text(result)
    assert result.output == sandbox.get("/tmp/diff") and lines.encode() in result.output


@pytest.mark.on_docker
def test_bytes_of_every_kind_survive(sandbox):
    data = bytes(range(256)) * 1000 + b"\n" * 7
    for path in ("plain", "a b/'c\"/$(d)\n*", "-n", "\udcff\u00fc"):
        sandbox.put(path, data)
        assert sandbox.get(path) == data
    sandbox.put("empty", b"")
    assert sandbox.get("empty") == b"" and text(sandbox.exec("stat -c %s plain empty")) == "256007\n0\n"
    with pytest.raises(FileNotFoundError):
        sandbox.get("absent/file")


@pytest.mark.full
def test_many_sandboxes_at_once(place, tree):
    failures = []

    def live(number):
        try:
            with place.start(tree, limits=SHORT) as box:
                for turn in range(3):
                    box.exec(f"echo {number}-{turn} >> log; sleep 0.05")
                assert text(box.exec("cat log")) == "".join(f"{number}-{turn}\n" for turn in range(3))
        except BaseException as error:
            failures.append(error)

    open_files = []
    for _ in range(3):  # a client keeps at most one connection per thread; a leak would leave 16 more
        threads = [threading.Thread(target=live, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        gc.collect()
        open_files.append(len(os.listdir("/proc/self/fd")))
    assert open_files[2] < open_files[0] + 8


@pytest.mark.on_docker
def test_two_commands_at_once_in_one_sandbox(sandbox):
    answers = {}
    waiter = threading.Thread(
        target=lambda: answers.update(first=sandbox.exec("until test -e flag; do sleep 0.05; done; cat flag"))
    )
    waiter.start()
    sandbox.exec("echo from the second > t; mv t flag")
    waiter.join()
    assert text(answers["first"]) == "from the second\n"


@pytest.mark.on_docker
def test_the_umask_of_the_caller_does_not_matter(place, tree):
    old = os.umask(0o077)
    try:
        with place.start(tree, limits=SHORT) as box:
            box.put("sub/put", b"")
            shown = text(box.exec("touch made; id -un; pytest --version; stat -c %a made sub sub/put"))
            assert shown.startswith("agent\npytest ") and shown.endswith("\n644\n755\n644\n")
    finally:
        os.umask(old)
