"""The file pages that a forgetting sandbox read into memory are gone after it."""

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
    """Returns whether a page of a file is in memory. The check does not read the page."""
    size = ctypes.c_size_t(os.path.getsize(path))
    descriptor = os.open(path, os.O_RDONLY)
    place = ctypes.c_void_p(libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0))
    pages = (ctypes.c_ubyte * (size.value // mmap.PAGESIZE + 1))()
    assert libc.mincore(place, size, pages) == 0
    libc.munmap(place, size)
    os.close(descriptor)
    return bool(pages[at // mmap.PAGESIZE] & 1)


def only_on_disk(path):
    """Writes a file's content to the disk and drops it from memory."""
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
    """A file that is only on disk."""
    path = tmp_path / "page"
    path.write_bytes(os.urandom(SIZE))
    if in_memory(only_on_disk(path)):
        pytest.skip("the files of this folder have no disk")
    return path


def reader(group, page):
    """Reads the page in a process of the group. The process has ended when this function returns."""
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
    """A file of the unpacked image, which sandboxes see at /usr/share/page."""
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
    """The file of the image is read by nothing else. The host sees it in the image's layer."""
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
