"""Bounded output: the text that is shown, the bytes that are counted, the memory that is used."""

import os
import threading
import time

import pytest

from swelab.sandbox.bounded_output import BoundedOutput


def _fed(limit, data, step):
    kept = BoundedOutput(limit)
    for start in range(0, len(data), step):
        kept.add(data[start : start + step])
    return kept


@pytest.mark.parametrize("step", [1, 3, 7, 100])
@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 19, 20, 21, 57])
def test_every_cut_into_chunks_gives_the_same_two_ends(size, step):
    data = bytes(range(48, 48 + size))
    kept = _fed(11, data, step)
    if size <= 11:
        assert (kept.value(), kept.dropped) == (data, 0)
    else:
        marker = f"\n[... {size - 11} bytes dropped ...]\n".encode()
        assert kept.value() == data[:5] + marker + data[-6:]
        assert kept.dropped == size - 11


def test_nothing_kept_is_still_counted():
    kept = _fed(0, b"x" * 50, 7)
    assert kept.dropped == 50
    assert b"50 bytes dropped" in kept.value()


@pytest.mark.full
def test_a_writer_of_many_lines_is_read_in_few_pieces_and_whole():
    read_end, write_end = os.pipe()
    lines = [b"%d\n" % number for number in range(300)]

    def write():
        for line in lines:
            os.write(write_end, line)
            time.sleep(0.0002)
        os.close(write_end)

    writer = threading.Thread(target=write)
    writer.start()
    kept, pieces = BoundedOutput(1 << 20), 0
    while kept.read(read_end):
        pieces += 1
    writer.join()
    os.close(read_end)
    assert kept.value() == b"".join(lines) and pieces < len(lines) / 3
