"""Valid, odd and hostile layers, unpacked and composed."""

import gzip
import os
import stat
import tarfile
import tempfile
from pathlib import Path

import pytest
import zstandard

from swelab.images.errors import ImageBroken
from swelab.images.image_store import compose, unpack_layer
from swelab.sandbox.pulled_images import inside
from tests.contract.registry import entry, files, layer, tar


def link(name, target, kind=tarfile.SYMTYPE):
    return entry(name, type=kind, linkname=target)


def folder(name, mode=0o755):
    return entry(name, type=tarfile.DIRTYPE, mode=mode)


@pytest.fixture
def unpacked(tmp_path):
    """Unpacks a layer's bytes. Returns (folder, notes)."""
    made = []

    def act(data):
        archive, target = tmp_path / f"{len(made)}.tar", tmp_path / f"layer{len(made)}"
        archive.write_bytes(data)
        target.mkdir()
        made.append(target)
        return target, unpack_layer(archive, target, "image x")

    return act


@pytest.fixture
def root_of(unpacked, tmp_path):
    """Returns the root made of layers, given as bytes, lowest first."""

    def act(*layers):
        root = tmp_path / "root"
        root.mkdir()
        compose([unpacked(data) for data in layers], root, "image x")
        return root

    return act


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_tar_gzip_and_zstd_are_read(unpacked, pack):
    place, notes = unpacked(pack(tar((entry("a/b", mode=0o755), b"text"))))
    assert (place / "a/b").read_bytes() == b"text" and stat.S_IMODE((place / "a/b").stat().st_mode) == 0o755
    assert (notes.files, notes.bytes, notes.implied) == (1, 4, [".", "a"])


@pytest.mark.parametrize(
    "entries",
    [
        [(entry("../out"), b"x")],
        [(entry("a/../../out"), b"x")],
        [link("a", "/"), (entry("a/out"), b"x")],
        [link("a", ".."), (entry("a/out"), b"x")],
        [link("a", "/"), folder("a/b")],
        [(entry("f"), b""), (entry("f/out"), b"x")],
        [link("h", "../../out", tarfile.LNKTYPE)],
        [link("s", "/"), link("h", "s/out", tarfile.LNKTYPE)],
        [folder("d"), link("h", "d", tarfile.LNKTYPE)],
        [(entry("a/.wh..."), b"")],
        [(entry(".wh.."), b"")],
        [(entry("x" * 300), b"")],
    ],
    ids=lambda entries: "+".join((e[0] if isinstance(e, tuple) else e).name for e in entries)[:40],
)
def test_what_leaves_the_image_is_refused_and_writes_nothing_outside(unpacked, tmp_path, entries):
    (tmp_path / "out").write_text("mine")
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(ImageBroken) as fault:
        unpacked(tar(*entries))
    assert str(fault.value).startswith("image x: ") and "\n" not in str(fault.value)
    assert {path.name for path in tmp_path.iterdir()} == before | {"0.tar", "layer0"}
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize(
    "data", [b"not a tar" * 200, gzip.compress(b"x" * 9000, mtime=0)[:50], b"\x28\xb5\x2f\xfdgarbage"]
)
def test_a_damaged_archive_is_one_typed_line(unpacked, data):
    with pytest.raises(ImageBroken, match="not a readable archive"):
        unpacked(data)


def test_a_cut_archive_is_noticed(unpacked):
    with pytest.raises(ImageBroken):
        unpacked(tar((entry("a"), b"x" * 5000))[:3000])


def test_devices_and_setuid_bits_are_left_out_and_counted(unpacked):
    place, notes = unpacked(
        tar(
            entry("dev/sda", type=tarfile.BLKTYPE),
            entry("dev/null", type=tarfile.CHRTYPE),
            (entry("su", mode=0o6755), b"x"),
        )
    )
    assert notes.skipped == 2 and not (place / "dev/sda").exists()
    assert stat.S_IMODE((place / "su").stat().st_mode) == 0o755


def test_a_later_entry_replaces_an_earlier_one(unpacked):
    place, _ = unpacked(
        tar((entry("d/x"), b"1"), (entry("d"), b"file"), link("e", "/etc"), (entry("e"), b"new"))
    )
    assert (place / "d").read_bytes() == b"file" and (place / "e").read_bytes() == b"new"
    assert not (place / "e").is_symlink()


def test_links_inside_a_layer(unpacked):
    place, notes = unpacked(
        tar((entry("a"), b"x"), link("h", "a", tarfile.LNKTYPE), link("abs", "/etc/passwd"))
    )
    assert os.path.samefile(place / "a", place / "h") and os.readlink(place / "abs") == "/etc/passwd"
    assert notes.links == []


def test_whiteouts_and_opaque_folders_hide_what_lies_below(root_of):
    root = root_of(
        files(a__one="1", a__two="2", b__one="1", b__two="2", c__deep__x="x"),
        tar(
            (entry("a/.wh.one"), b""),
            (entry("b/.wh..wh..opq"), b""),
            (entry("b/new"), b"n"),
            (entry(".wh.c"), b""),
        ),
    )
    assert sorted(p.name for p in (root / "a").iterdir()) == ["two"]
    assert sorted(p.name for p in (root / "b").iterdir()) == ["new"]
    assert not (root / "c").exists() and not list(root.rglob(".wh.*"))


def test_a_whiteout_through_a_link_stays_inside(root_of, tmp_path):
    (tmp_path / "victim").write_text("mine")
    root = root_of(
        tar(link("up", str(tmp_path)), link("dots", "../../../..")),
        tar((entry("up/.wh.victim"), b""), (entry("dots/.wh.victim"), b""), (entry("up/.wh..wh..opq"), b"")),
    )
    assert (tmp_path / "victim").read_text() == "mine" and root.is_dir()


def test_an_upper_layer_writes_through_a_lower_link_inside_the_root_only(root_of, tmp_path):
    root = root_of(
        tar(folder("usr/bin"), link("bin", "usr/bin"), link("abs", "/usr/bin")),
        tar((entry("bin/tool"), b"t"), (entry("abs/other"), b"o")),
    )
    assert (root / "usr/bin/tool").read_bytes() == b"t" and (root / "usr/bin/other").read_bytes() == b"o"
    assert (root / "bin").is_symlink()


def test_a_lower_link_to_nowhere_is_refused(root_of, tmp_path):
    with pytest.raises(ImageBroken, match="a link to no folder"):
        root_of(tar(link("out", str(tmp_path))), tar((entry("out/evil"), b"x")))
    assert not (tmp_path / "evil").exists()


def test_kinds_replace_each_other_between_layers(root_of):
    root = root_of(
        tar((entry("f"), b"file"), (entry("d/x"), b"x"), link("l", "/etc")),
        tar(folder("f"), (entry("d"), b"file"), folder("l", 0o700), (entry("l/in"), b"i")),
    )
    assert (root / "f").is_dir() and (root / "d").read_bytes() == b"file"
    assert not (root / "l").is_symlink() and (root / "l/in").read_bytes() == b"i"
    assert stat.S_IMODE((root / "l").stat().st_mode) == 0o700


def test_hard_links_to_a_lower_layer(root_of, unpacked):
    root = root_of(files(a="deep"), tar(link("b", "a", tarfile.LNKTYPE)))
    assert os.path.samefile(root / "a", root / "b")


def test_a_hard_link_to_nothing_or_out_is_refused(unpacked, tmp_path):
    lower, upper = (
        unpacked(tar(link("s", "/etc/passwd"))),
        unpacked(tar(link("b", "absent", tarfile.LNKTYPE))),
    )
    (tmp_path / "r").mkdir()
    with pytest.raises(ImageBroken, match="which is no file"):
        compose([lower, upper], tmp_path / "r", "image x")


def test_paths_inside_a_root_never_leave_it(tmp_path):
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").write_text("inner")
    (root / "abs").symlink_to("/etc")
    (root / "up").symlink_to("../../../etc")
    (root / "loop").symlink_to("loop")
    for path in ("/etc/passwd", "abs/passwd", "up/passwd", "../../etc/passwd", "abs/../etc/passwd"):
        assert inside(root, path) == root / "etc/passwd", path
    assert (
        inside(root, "loop") is None
        and inside(root, "absent/x") is None
        and inside(root, "etc/passwd/x") is None
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to another user")
def test_an_ordinary_user_unpacks_too():
    with tempfile.TemporaryDirectory() as place:
        shared = Path(place)
        os.chown(shared, 65534, 65534)
        data = layer((entry("a/b", uid=0, gid=0), b"x"), folder("closed", 0o000), (entry("s", mode=0), b"s"))
        (shared / "l.tar").write_bytes(data)
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                (shared / "layer").mkdir()
                (shared / "root").mkdir()
                notes = unpack_layer(shared / "l.tar", shared / "layer", "image x")
                compose([(shared / "layer", notes)], shared / "root", "image x")
                os._exit(0 if (shared / "root/s").read_text() == "s" and notes.files == 2 else 3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (shared / "root/a/b").stat().st_uid == 65534
