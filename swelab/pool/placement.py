"""Which waiting lease gets a place next, and where: no input or output, no state but that of the leases."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from swelab.pool.leases import PLACED, Lease
from swelab.sandbox.protocol import ImageMissing, SandboxError
from swelab.sandbox.remote_protocol import Refused

_WARM = 0.3
"""A node that has made sandboxes of the image counts as emptier by this share of its places."""


NOBODY: Mapping[str, int] = {}
PASSES = 32
"""Places that later leases may take before one that waits for a bigger place."""


@dataclass
class Room:
    """What is known of a node. Times are of time.monotonic()."""

    url: str
    draining: bool = False
    healthy: bool = False
    most_places: int = 0
    most_memory: int = 0
    most_limits: Mapping[str, float] = field(default_factory=dict)  # of one sandbox
    foreign_places: int = 0  # taken by others than this pool
    foreign_memory: int = 0
    shy_until: float = 0.0  # it refused for want of room
    absent: dict[str, tuple[float, str]] = field(
        default_factory=dict
    )  # image -> (until when, why) it lacks it
    warm: set[str] = field(default_factory=set)

    def lacks(self, image: str, now: float) -> bool:
        """Whether the node said recently that it does not have the image."""
        return self.absent.get(image, (0.0, ""))[0] > now

    def never(self, lease: Lease) -> str:
        """Why it can have no sandbox of these limits, however empty it is; "" where it can."""
        if 0 < self.most_memory < lease.memory:
            return f"no host gives a sandbox {lease.memory} bytes of memory"
        asked = lease.request.limits
        names = (name for name, most in self.most_limits.items() if asked.get(name, 0) > most)
        told = (f"limits.{name}: {asked[name]}; expected at most {self.most_limits[name]}" for name in names)
        return next(told, "")


@dataclass
class Use:
    """Places and bytes that leases take on a node."""

    places: int = 0
    memory: int = 0


def uses(leases: Iterable[Lease]) -> dict[str, Use]:
    """What leases take, by node."""
    found: dict[str, Use] = {}
    for lease in leases:
        if lease.state in PLACED:
            use = found.setdefault(lease.node, Use())
            use.places += 1
            use.memory += lease.memory
    return found


def fair(
    waiting: Sequence[Lease], leases: Mapping[str, int], served: Mapping[str, int] = NOBODY
) -> list[Lease]:
    """Waiting leases in the order of serving: those of the token with the fewest leases first.

    Then of the one that was `served` longest ago (token -> a number that grows), then the oldest.
    """
    before: Counter[str] = Counter(leases)
    ranked = []
    for number, lease in enumerate(waiting):
        ranked.append((before[lease.client], served.get(lease.client, 0), number, lease))
        before[lease.client] += 1
    return [lease for *_, lease in sorted(ranked, key=lambda each: each[:3])]


def choose(lease: Lease, rooms: Iterable[Room], used: Mapping[str, Use], now: float) -> Room | None:
    """The emptiest node with room, first among those that have its image; None when none has room."""
    best: tuple[float, int, str] | None = None
    found = None
    for room in rooms:
        use = used.get(room.url) or Use()
        places = use.places + room.foreign_places
        memory = use.memory + room.foreign_memory + lease.memory
        if places >= room.most_places or memory > room.most_memory or room.shy_until > now:
            continue
        if room.never(lease):
            continue
        load = places / room.most_places - (_WARM if lease.image in room.warm else 0.0)
        score = load, memory - room.most_memory, room.url
        if best is None or score < best:
            best, found = score, room
    return found


def _kept_for(lease: Lease, rooms: Sequence[Room], used: Mapping[str, Use]) -> str:
    """The node that is kept for a lease: the same as before, or the one with most room for it."""
    able = {room.url: room for room in rooms if room.most_memory and not room.never(lease)}
    if lease.keeps in able:
        return lease.keeps

    def left(url: str) -> tuple[int, int]:
        use, room = used.get(url) or Use(), able[url]
        return room.most_memory - room.foreign_memory - use.memory, room.most_places - use.places

    return max(able, key=left, default="")


def plan(
    waiting: Sequence[Lease],
    rooms: Sequence[Room],
    leases: Iterable[Lease],
    most: int,
    now: float,
    served: Mapping[str, int] = NOBODY,
) -> tuple[list[tuple[Lease, Room]], dict[str, SandboxError]]:
    """(leases with their nodes, lease id -> why it can never be placed).

    A lease for which no node has room now lets PASSES later ones pass, one by one as there is room for them.
    Then the node that has most room for it is kept for it alone; `passed` and `keeps` of a lease tell so.
    """
    used, placed = uses(leases), [lease for lease in leases if lease.state in PLACED]
    free = most - len(placed)
    going: list[tuple[Lease, Room]] = []
    never: dict[str, SandboxError] = {}
    joined = [room for room in rooms if not room.draining]
    healthy = {room.url for room in joined if room.healthy}
    kept: set[str] = set()
    late: list[Lease] = []
    for lease in fair(waiting, Counter(each.client for each in placed), served):
        able = [room for room in joined if not room.lacks(lease.image, now)]
        if joined and not able:
            whys = sorted({room.absent[lease.image][1] for room in joined})
            never[lease.id] = ImageMissing(f"on {len(joined)} of {len(joined)} hosts: {'; '.join(whys)}")
        elif able and all(whys := [room.never(lease) for room in able]):
            never[lease.id] = Refused(whys[0])
        elif free <= 0 or kept >= healthy:
            break
        else:
            open_to = [room for room in able if room.url in healthy - kept]
            room = choose(lease, open_to, used, now)
            if room is None:
                if lease.passed >= PASSES and (own := _kept_for(lease, open_to, used)):
                    lease.keeps = own
                    kept.add(own)
                late.append(lease)
                continue
            for each in late:
                each.passed += not room.lacks(each.image, now)
            use = used.setdefault(room.url, Use())
            use.places, use.memory, free = use.places + 1, use.memory + lease.memory, free - 1
            going.append((lease, room))
    return going, never
