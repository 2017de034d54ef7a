"""put and get on a folder that an attacker arranged. No sandbox is needed."""

import os
import stat
from contextlib import suppress

import pytest

from swelab.sandbox import PathRefused
from swelab.sandbox.safe_files import locate, read_file, write_file

OWNER = (os.getuid(), os.getgid())


@pytest.fixture
def root(tmp_path):
    for name in ("testbed", "tmp", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "secret").write_text("host")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("a.py", ("testbed", ["a.py"])),
        ("./a/b.py", ("testbed", ["a", "b.py"])),
        ("/testbed/a.py", ("testbed", ["a.py"])),
        ("/tmp/x", ("tmp", ["x"])),
    ],
)
def test_paths_that_are_inside(path, place):
    assert locate(path) == place


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "/",
        "/testbed",
        "/tmp",
        "../x",
        "a/../../x",
        "/testbed/../etc/x",
        "/etc/passwd",
        "/home/x",
        "a\0b",
    ],
)
def test_paths_that_are_not(path):
    with pytest.raises(PathRefused):
        locate(path)


def test_round_trip_makes_folders_and_keeps_the_mode(root):
    write_file(root, "new/deep/run.sh", b"one", OWNER)
    placed = root / "testbed/new/deep/run.sh"
    placed.chmod(0o755)
    write_file(root, "new/deep/run.sh", b"two", OWNER)
    assert read_file(root, "new/deep/run.sh", 100) == b"two"
    assert stat.S_IMODE(placed.stat().st_mode) == 0o755
    assert [entry.name for entry in placed.parent.iterdir()] == ["run.sh"]


def test_links_lead_nowhere(root):
    testbed = root / "testbed"
    (testbed / "file").symlink_to(root / "outside" / "secret")
    (testbed / "folder").symlink_to(root / "outside")
    (testbed / "loop").symlink_to("loop")
    for path in ("file", "folder/secret", "loop", "loop/x"):
        with pytest.raises(PathRefused):
            read_file(root, path, 100)
        with pytest.raises(PathRefused):
            write_file(root, path, b"mine", OWNER)
    with pytest.raises(PathRefused):
        write_file(root, "folder/new", b"mine", OWNER)
    assert [entry.name for entry in (root / "outside").iterdir()] == ["secret"]
    assert (root / "outside" / "secret").read_text() == "host"


def test_a_hard_link_is_replaced_and_not_written_through(root):
    os.link(root / "outside" / "secret", root / "testbed" / "linked")
    write_file(root, "linked", b"mine", OWNER)
    assert (root / "outside" / "secret").read_text() == "host"


def test_what_is_no_regular_file_is_refused_without_waiting(root):
    os.mkfifo(root / "testbed" / "fifo")
    (root / "testbed" / "folder").mkdir()
    (root / "testbed" / "plain").write_text("")
    for path in ("fifo", "folder", "plain/below"):
        with pytest.raises(PathRefused):
            read_file(root, path, 100)
        with pytest.raises(PathRefused):
            write_file(root, path, b"", OWNER)


def test_size_is_bounded_and_a_missing_file_is_said_to_be_missing(root):
    write_file(root, "/tmp/data", b"x" * 100, OWNER)
    assert len(read_file(root, "/tmp/data", 100)) == 100
    with pytest.raises(PathRefused, match="more than 99 bytes"):
        read_file(root, "/tmp/data", 99)
    with pytest.raises(FileNotFoundError, match="no such file in the sandbox"):
        read_file(root, "absent/file", 99)


def opened():
    """Returns the paths that this process has open."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            yield os.readlink(f"/proc/self/fd/{name}")


def test_no_descriptor_is_left_open(root):
    (root / "testbed" / "folder").mkdir()
    for path in ("folder", "absent", "a/b/c", "/etc/x"):
        for act in (lambda p: read_file(root, p, 9), lambda p: write_file(root, p + "/x/y", b"", OWNER)):
            with suppress(PathRefused, FileNotFoundError):
                act(path)
    assert not [path for path in opened() if path.startswith(str(root))]
