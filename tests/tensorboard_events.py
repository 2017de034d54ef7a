"""Reads TensorBoard's files."""

import struct
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    """Returns (step, tag, value) from TensorBoard's files. A record is: length, checksum, event, checksum."""
    found = []
    for path in sorted(folder.glob("events.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + size])
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            at += size + 16
    return found
