"""What a sandbox that forgets has brought into memory is gone with it."""

import ctypes
import mmap
import os
import subprocess

import pytest

from swelab.sandbox import open_backend
from swelab.sandbox.memory_group import MemoryGroup, prune_groups
from tests.contract.attacks import SHORT

pytestmark = pytest.mark.real
SIZE = 1 << 20


libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def in_memory(path, at=SIZE // 2):
    """Whether a page of a file is in memory; to ask does not bring it there."""
    size = ctypes.c_size_t(os.path.getsize(path))
    descriptor = os.open(path, os.O_RDONLY)
    place = ctypes.c_void_p(libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0))
    pages = (ctypes.c_ubyte * (size.value // mmap.PAGESIZE + 1))()
    assert libc.mincore(place, size, pages) == 0
    libc.munmap(place, size)
    os.close(descriptor)
    return bool(pages[at // mmap.PAGESIZE] & 1)


def only_on_disk(path):
    """Brings a file's content to the disk and out of memory."""
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    return path


@pytest.fixture
def group():
    made = MemoryGroup.make()
    if made is None:
        pytest.skip("no control group can be made here")
    yield made
    made.remove()


@pytest.fixture
def page(tmp_path):
    """A file that is on a disk alone."""
    path = tmp_path / "page"
    path.write_bytes(os.urandom(SIZE))
    if in_memory(only_on_disk(path)):
        pytest.skip("the files of this folder have no disk")
    return path


def reader(group, page):
    """Reads the page in a process of the group, which has ended when this returns."""
    code = f"read -r _; exec dd if={page} of=/dev/null bs=1 count=1 skip={SIZE // 2} status=none"
    child = subprocess.Popen(["bash", "-c", code], stdin=subprocess.PIPE)
    group.take([child.pid], SHORT)
    child.communicate(b"\n")
    assert child.returncode == 0 and in_memory(page)


def test_a_group_takes_what_it_has_read_from_memory(group, page):
    reader(group, page)
    group.drop()
    assert not in_memory(page)


def test_what_the_group_of_a_killed_caller_has_read_goes_with_it(group, page):
    reader(group, page)
    prune_groups()
    assert not group.folder.exists() and not in_memory(page)


def test_what_others_have_read_stays(group, page):
    page.read_bytes()
    reader(group, page)
    group.drop()
    assert in_memory(page)


READ = "test -s {0} && dd if={0} of=/dev/null bs=1 count=1 skip={1} status=none && echo read"


@pytest.fixture
def shown(image):
    """A file of the unpacked image, which its sandboxes see at /usr/share/page."""
    path = image.folder / "usr/share/page"
    path.write_bytes(os.urandom(SIZE))
    yield only_on_disk(path)
    path.unlink()


def test_a_sandbox_that_forgets_leaves_no_page(backend, image, shown, tree, group):
    with backend.start(tree, image=image, limits=SHORT, forgets=True) as box:
        assert box.exec(READ.format("/usr/share/page", SIZE // 2)).output == b"read\n"
        assert in_memory(shown)
    assert not in_memory(shown)


@pytest.mark.full
@pytest.mark.parametrize("name", ["docker", "remote"])
def test_a_container_that_forgets_leaves_no_page(name, engine, tree, request):
    """A file of the image that nothing else reads, seen from the host in the layer that it is in."""
    if name == "remote":
        request.getfixturevalue("pool")
    backend, inside = open_backend(name), "/usr/bin/git"
    with backend.start(tree, limits=SHORT, forgets=True) as box:
        layers = engine.docker("inspect", "-f", "{{.GraphDriver.Data.LowerDir}}", box.containers()[0])
        found = [f"{layer}{inside}" for layer in layers.split(":") if os.path.exists(f"{layer}{inside}")]
        assert found
        only_on_disk(found[0])
        assert not in_memory(found[0])
        assert box.exec(READ.format(inside, SIZE // 2)).output == b"read\n"
        assert in_memory(found[0])
    assert not in_memory(found[0])
