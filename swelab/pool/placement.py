"""Decides which waiting lease is placed next, and on which node. Does no I/O and stores nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from swelab.pool.leases import PLACED, Lease
from swelab.sandbox.protocol import ImageMissing, SandboxError
from swelab.sandbox.remote_protocol import Refused

_WARM = 0.3
"""Fraction of its places that we subtract from a node's load if it already made sandboxes of the image."""


NOBODY: Mapping[str, int] = {}
PASSES = 32
"""How many later leases may be placed before a large lease that waits. Then a node is reserved for it."""


@dataclass
class NodeCapacity:
    """The known capacity and state of a node. Times are by time.monotonic()."""

    url: str
    draining: bool = False
    healthy: bool = False
    most_places: int = 0
    most_memory: int = 0
    most_limits: Mapping[str, float] = field(default_factory=dict)  # limits of one sandbox
    foreign_places: int = 0  # places used by sandboxes outside this pool
    foreign_memory: int = 0
    paused_until: float = 0.0  # no placements until then: making a sandbox failed there
    absent: dict[str, tuple[float, str]] = field(
        default_factory=dict
    )  # image that it lacks -> (until when we assume so, the error)
    warm: set[str] = field(default_factory=set)

    def lacks(self, image: str, now: float) -> bool:
        """Whether the node reported recently that it does not have the image."""
        return self.absent.get(image, (0.0, ""))[0] > now

    def never(self, lease: Lease) -> str:
        """Why a sandbox with these limits cannot run even on the empty node; "" if it can."""
        if 0 < self.most_memory < lease.memory:
            return f"no host gives a sandbox {lease.memory} bytes of memory"
        asked = lease.request.limits
        names = (name for name, most in self.most_limits.items() if asked.get(name, 0) > most)
        above = (f"limits.{name}: {asked[name]}; expected at most {self.most_limits[name]}" for name in names)
        return next(above, "")


@dataclass
class Use:
    """Number of leases on a node, and their bytes of memory."""

    places: int = 0
    memory: int = 0


def uses(leases: Iterable[Lease]) -> dict[str, Use]:
    """The number and memory of these leases by node."""
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
    """The waiting leases in the order in which they are placed.

    The token with the fewest `leases` comes first. Among equal tokens, the one that was served longest ago
    comes first (`served`: token -> a number that grows with each placement), then the oldest request.
    """
    before: Counter[str] = Counter(leases)
    ranked = []
    for number, lease in enumerate(waiting):
        ranked.append((before[lease.client], served.get(lease.client, 0), number, lease))
        before[lease.client] += 1
    return [lease for *_, lease in sorted(ranked, key=lambda each: each[:3])]


def choose(
    lease: Lease, nodes: Iterable[NodeCapacity], used: Mapping[str, Use], now: float
) -> NodeCapacity | None:
    """The least loaded node on which the lease fits now (for loads, see _WARM); None if it fits on no
    node."""
    best: tuple[float, int, str] | None = None
    found = None
    for node in nodes:
        use = used.get(node.url) or Use()
        places = use.places + node.foreign_places
        memory = use.memory + node.foreign_memory + lease.memory
        if places >= node.most_places or memory > node.most_memory or node.paused_until > now:
            continue
        if node.never(lease):
            continue
        load = places / node.most_places - (_WARM if lease.image in node.warm else 0.0)
        score = load, memory - node.most_memory, node.url
        if best is None or score < best:
            best, found = score, node
    return found


def _node_to_reserve(lease: Lease, nodes: Sequence[NodeCapacity], used: Mapping[str, Use]) -> str:
    """The node to reserve for a lease: the node reserved before, otherwise the node with most free memory."""
    able = {node.url: node for node in nodes if node.most_memory and not node.never(lease)}
    if lease.keeps in able:
        return lease.keeps

    def left(url: str) -> tuple[int, int]:
        use, node = used.get(url) or Use(), able[url]
        return node.most_memory - node.foreign_memory - use.memory, node.most_places - use.places

    return max(able, key=left, default="")


def plan(
    waiting: Sequence[Lease],
    nodes: Sequence[NodeCapacity],
    leases: Iterable[Lease],
    most: int,
    now: float,
    served: Mapping[str, int] = NOBODY,
) -> tuple[list[tuple[Lease, NodeCapacity]], dict[str, SandboxError]]:
    """Returns (leases to place with their nodes, lease id -> error of a lease that fits on no node).

    most: maximum number of placed leases. Up to PASSES later leases may overtake a lease that fits on no node
    now; its `passed` counts them. Then a node is reserved for that lease; its `keeps` names the node.
    """
    used, placed = uses(leases), [lease for lease in leases if lease.state in PLACED]
    free = most - len(placed)
    going: list[tuple[Lease, NodeCapacity]] = []
    never: dict[str, SandboxError] = {}
    joined = [node for node in nodes if not node.draining]
    healthy = {node.url for node in joined if node.healthy}
    kept: set[str] = set()
    late: list[Lease] = []
    for lease in fair(waiting, Counter(each.client for each in placed), served):
        able = [node for node in joined if not node.lacks(lease.image, now)]
        if joined and not able:
            whys = sorted({node.absent[lease.image][1] for node in joined})
            never[lease.id] = ImageMissing(f"on {len(joined)} of {len(joined)} hosts: {'; '.join(whys)}")
        elif able and all(whys := [node.never(lease) for node in able]):
            never[lease.id] = Refused(whys[0])
        elif free <= 0 or kept >= healthy:
            break
        else:
            open_to = [node for node in able if node.url in healthy - kept]
            node = choose(lease, open_to, used, now)
            if node is None:
                if lease.passed >= PASSES and (own := _node_to_reserve(lease, open_to, used)):
                    lease.keeps = own
                    kept.add(own)
                late.append(lease)
                continue
            for each in late:
                each.passed += not node.lacks(each.image, now)
            use = used.setdefault(node.url, Use())
            use.places, use.memory, free = use.places + 1, use.memory + lease.memory, free - 1
            going.append((lease, node))
    return going, never
