"""A file that several processes write at once is either complete or missing."""

import os
import subprocess
import sys
import tempfile
import threading

import pytest

from swelab.records import atomic, write_bytes

HELD = """
import sys, time
from swelab.records import atomic
with atomic(sys.argv[1]) as stream:
    stream.write(b"half")
    stream.flush()
    print("open", flush=True)
    time.sleep(600)
"""


def parts(folder):
    return [path for path in folder.iterdir() if path.suffix == ".part"]


def held(path):
    """A process that has started to write `path`."""
    process = subprocess.Popen([sys.executable, "-c", HELD, path], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"open\n"
    return process


def test_two_writers_at_once_each_end_well(tmp_path):
    """Equal patches of a group are graded at the same time.

    The second used to delete the first one's partial file.
    """
    path = tmp_path / "run.json"
    with atomic(path) as first:
        first.write(b"first")
        write_bytes(path, b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first" and not parts(tmp_path)


def test_folders_that_were_made_for_a_file_go_with_it(tmp_path):
    (tmp_path / "there").mkdir()
    for path in (tmp_path / "new/newer/x", tmp_path / "there/x"):
        with pytest.raises(KeyError), atomic(path) as stream:
            stream.write(b"half")
            raise KeyError
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    with pytest.raises(KeyError), atomic(tmp_path / "new/x"):
        write_bytes(tmp_path / "new/y", b"another's")
        raise KeyError
    assert (tmp_path / "new/y").read_bytes() == b"another's"


def test_a_folder_that_another_writer_took_away_is_made_again(tmp_path, monkeypatch):
    taken = []

    def mkstemp(**where):
        if not taken:
            taken.append(where["dir"].rmdir())
        return made(**where)

    made = tempfile.mkstemp
    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    write_bytes(tmp_path / "new/x", b"whole")
    assert taken and (tmp_path / "new/x").read_bytes() == b"whole"


def test_many_writers_of_one_file(tmp_path):
    path, faults = tmp_path / "run.json", []
    start = threading.Barrier(8)

    def write(number):
        start.wait()
        try:
            for _ in range(50):
                write_bytes(path, bytes([number]) * 100_000, durable=False)
        except OSError as error:
            faults.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and not parts(tmp_path)
    assert len(set(path.read_bytes())) == 1 and path.stat().st_size == 100_000


def test_what_another_process_writes_is_left_and_what_a_killed_one_left_is_removed(tmp_path):
    path = tmp_path / "run.json"
    process = held(path)
    try:
        write_bytes(path, b"mine")
        assert len(parts(tmp_path)) == 1, "it still writes"
    finally:
        process.kill()
        process.wait()
    write_bytes(path, b"mine")
    assert parts(tmp_path) == [] and path.read_bytes() == b"mine"


def test_a_fault_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "run.json"
    write_bytes(path, b"before")
    try:
        with atomic(path) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["run.json"]
