"""Source archives: found through pip's configuration, checked, made into deterministic tars."""

import hashlib
import io
import tarfile

import pytest

from swelab.configs.kinds.repo import PypiRepo
from swelab.files.package_index import fetch_archive
from swelab.records import InputError
from swelab.tasks.forge.archive import build_repo, read_members

MIT = b"Permission is hereby granted, free of charge, to any\nperson obtaining a copy of this"


def sdist(extra: tuple[tarfile.TarInfo, ...] = (), mtime: int = 7) -> bytes:
    buffer = io.BytesIO()
    files = {
        "LICENSE": MIT,
        "PKG-INFO": b"Name: tiny",
        "tiny.egg-info/x": b"",
        "tiny/core.py": b"x = 1\n",
        "run.sh": b"#!/bin/sh\n",
        "tiny/__pycache__/core.cpython-311.pyc": b"",
    }
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"tiny-1.0/{name}")
            member.size, member.mtime, member.uid = len(data), mtime, 1000
            member.mode = 0o755 if name == "run.sh" else 0o600
            tar.addfile(member, io.BytesIO(data))
        for member in extra:
            tar.addfile(member)
    return buffer.getvalue()


def recipe(data: bytes, **changes) -> PypiRepo:
    settings = {
        "source": "pypi",
        "package": "tiny",
        "version": "1.0",
        "file": "tiny-1.0.tar.gz",
        "sha256": hashlib.sha256(data).hexdigest(),
        "owner": "me",
        "licence": "MIT",
        "licence_file": "LICENSE",
        "targets": ["tiny/*"],
        "tests": ["tests/*"],
        "test_cmd": "pytest",
    }
    return PypiRepo(**settings | changes)


@pytest.fixture
def archive_folder(tmp_path, monkeypatch):
    """The only folder in which pip is configured to find archives."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_download_by_pip_configuration_then_from_the_cache(archive_folder, tmp_path):
    data = sdist()
    (archive_folder / "tiny-1.0.tar.gz").write_bytes(data)
    assert fetch_archive(recipe(data), tmp_path / "cache") == data
    (archive_folder / "tiny-1.0.tar.gz").unlink()
    assert fetch_archive(recipe(data), tmp_path / "cache") == data


def test_a_damaged_cache_entry_is_fetched_again(archive_folder, tmp_path):
    data = sdist()
    (archive_folder / "tiny-1.0.tar.gz").write_bytes(data)
    fetch_archive(recipe(data), tmp_path / "cache")
    [cached] = (tmp_path / "cache").rglob("*.tar.gz")
    cached.write_bytes(data[:50])
    assert fetch_archive(recipe(data), tmp_path / "cache") == data


def test_another_hash_is_refused_and_not_cached(archive_folder, tmp_path):
    (archive_folder / "tiny-1.0.tar.gz").write_bytes(sdist())
    with pytest.raises(InputError, match=r"tiny-1\.0\.tar\.gz: sha256 is [0-9a-f]{64}; expected 0000"):
        fetch_archive(recipe(sdist(), sha256="0" * 64), tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.tar.gz"))


def test_a_file_that_is_not_there(archive_folder, tmp_path):
    with pytest.raises(InputError, match=r"tiny-1\.0\.tar\.gz: not on the package index; expected"):
        fetch_archive(recipe(sdist()), tmp_path / "cache")


def test_an_index_that_does_not_answer_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(InputError, match="not on the package index .*Could not fetch URL"):
        fetch_archive(recipe(sdist()), tmp_path / "cache")


def test_the_repository_archive_depends_on_content_alone(archive_folder, tmp_path):
    made = []
    for mtime in (7, 8):
        data = sdist(mtime=mtime)
        (archive_folder / "tiny-1.0.tar.gz").write_bytes(data)
        made.append(build_repo(recipe(data), tmp_path / "cache"))
    assert made[0] == made[1]
    with tarfile.open(fileobj=io.BytesIO(made[0])) as tar:
        members = {member.name: member for member in tar}
    assert list(members) == ["LICENSE", "run.sh", "tiny/core.py"]
    assert members["run.sh"].mode == 0o755 and members["LICENSE"].mode == 0o644
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members.values()} == {(0, 0, 0, "")}


def test_only_the_files_that_are_asked_for(archive_folder, tmp_path):
    data = sdist()
    (archive_folder / "tiny-1.0.tar.gz").write_bytes(data)
    tar = build_repo(recipe(data, only=["tiny/*.py"]), tmp_path / "cache")
    assert tarfile.open(fileobj=io.BytesIO(tar)).getnames() == ["tiny/core.py"]
    with pytest.raises(InputError, match=r"tiny-1\.0\.tar\.gz: \*\.md: only: no file .*as tiny/core\.py"):
        build_repo(recipe(data, only=["tiny/*.py", "*.md"]), tmp_path / "cache")
    assert "only" not in recipe(data).model_dump()


def test_a_licence_that_is_not_the_named_one(archive_folder, tmp_path):
    data = sdist()
    (archive_folder / "tiny-1.0.tar.gz").write_bytes(data)
    with pytest.raises(InputError, match="licence text not found; expected the text of Apache-2.0"):
        build_repo(recipe(data, licence="Apache-2.0"), tmp_path / "cache")


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@pytest.mark.parametrize(
    "member",
    [
        entry("tiny-1.0/../../out"),
        entry("/etc/passwd"),
        entry("../out"),
        entry("loose"),
        entry("tiny-1.0/.git/config"),
        entry("tiny-1.0/link", tarfile.SYMTYPE, "/etc/passwd"),
        entry("tiny-1.0/hard", tarfile.LNKTYPE, "tiny-1.0/LICENSE"),
        entry("tiny-1.0/device", tarfile.CHRTYPE),
    ],
    ids=lambda member: member.name,
)
def test_unsafe_entries_are_refused(member):
    with pytest.raises(InputError, match="unsafe entry"):
        read_members(sdist((member,)), "tiny-1.0.tar.gz")


@pytest.mark.parametrize("data", [b"", b"no archive", sdist()[:200]], ids=["empty", "text", "cut"])
def test_broken_archives_are_one_line(data):
    with pytest.raises(InputError, match="not a usable archive"):
        read_members(data, "tiny-1.0.tar.gz")
