"""Decides which waiting lease is placed next, and on which node. Does no I/O and stores nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from swelab.pool.leases import PLACED, Lease
from swelab.sandbox.protocol import ImageMissing, SandboxError
from swelab.sandbox.remote_protocol import Refused

_WARM = 0.3
"""This number is subtracted from the load of a node that has already created sandboxes of the image.

The load of a node is the fraction of its places that are in use.
"""


NOBODY: Mapping[str, int] = {}
PASSES = 32
"""Number of leases that may be placed before an earlier lease that fits on no node.

After that, a node is reserved for the earlier lease.
"""


@dataclass
class NodeCapacity:
    """The known capacity and state of a node. Times are values of time.monotonic()."""

    url: str
    draining: bool = False
    healthy: bool = False
    most_places: int = 0
    most_memory: int = 0
    most_limits: Mapping[str, float] = field(default_factory=dict)  # highest limits of one sandbox
    foreign_places: int = 0  # places used by sandboxes outside this pool
    foreign_memory: int = 0
    paused_until: float = 0.0  # no placements until then, because a sandbox could not be created there
    absent: dict[str, tuple[float, str]] = field(
        default_factory=dict
    )  # maps a missing image to (time until which it counts as missing, error)
    warm: set[str] = field(default_factory=set)

    def lacks(self, image: str, now: float) -> bool:
        """Returns whether the node recently reported that it does not have the image."""
        return self.absent.get(image, (0.0, ""))[0] > now

    def never(self, lease: Lease) -> str:
        """Returns why the lease's sandbox could not run even if this node were empty, or "" if it could
        run."""
        if 0 < self.most_memory < lease.memory:
            return f"no host gives a sandbox {lease.memory} bytes of memory"
        asked = lease.request.limits
        names = (name for name, most in self.most_limits.items() if asked.get(name, 0) > most)
        above = (f"limits.{name}: {asked[name]}; expected at most {self.most_limits[name]}" for name in names)
        return next(above, "")


@dataclass
class Use:
    """The number of leases on a node, and the bytes of memory of these leases."""

    places: int = 0
    memory: int = 0


def uses(leases: Iterable[Lease]) -> dict[str, Use]:
    """Returns the use of each node by placed leases, keyed by the node's URL."""
    by_node: dict[str, Use] = {}
    for lease in leases:
        if lease.state in PLACED:
            use = by_node.setdefault(lease.node, Use())
            use.places += 1
            use.memory += lease.memory
    return by_node


def fair(
    waiting: Sequence[Lease], leases: Mapping[str, int], served: Mapping[str, int] = NOBODY
) -> list[Lease]:
    """Returns the waiting leases in the order in which they are placed.

    The next lease is always one of the client token that has the fewest leases so far. If tokens have equally
    many, the token that was served longest ago comes first, then the oldest request. leases: maps a token to
    its number of placed leases. served: maps a token to a number that grows with each placement.
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
    """Returns the least loaded node on which the lease fits now, or None. About the load, see _WARM."""
    best: tuple[float, int, str] | None = None
    best_node = None
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
            best, best_node = score, node
    return best_node


def _node_to_reserve(lease: Lease, nodes: Sequence[NodeCapacity], used: Mapping[str, Use]) -> str:
    """Returns the node to reserve for a lease.

    If a node was reserved for the lease before, returns that node, otherwise the node with the most free
    memory.
    """
    able = {node.url: node for node in nodes if node.most_memory and not node.never(lease)}
    if lease.keeps in able:
        return lease.keeps

    def room(url: str) -> tuple[int, int]:
        use, node = used.get(url) or Use(), able[url]
        return node.most_memory - node.foreign_memory - use.memory, node.most_places - use.places

    return max(able, key=room, default="")


def plan(
    waiting: Sequence[Lease],
    nodes: Sequence[NodeCapacity],
    leases: Iterable[Lease],
    most: int,
    now: float,
    served: Mapping[str, int] = NOBODY,
) -> tuple[list[tuple[Lease, NodeCapacity]], dict[str, SandboxError]]:
    """Chooses nodes for waiting leases. Returns (pairs of a lease and its node, map from lease id to error).

    A lease gets an error if it could not run on any node even if the node were empty. most: maximum number of
    placed leases. If a lease fits on no node now, PASSES later leases may be placed before it. `lease.passed`
    counts these leases. After that, a node is reserved for the lease, and `lease.keeps` is the node's URL.
    """
    used, placed = uses(leases), [lease for lease in leases if lease.state in PLACED]
    free = most - len(placed)
    going: list[tuple[Lease, NodeCapacity]] = []
    never: dict[str, SandboxError] = {}
    joined = [node for node in nodes if not node.draining]
    healthy = {node.url for node in joined if node.healthy}
    reserved: set[str] = set()
    late: list[Lease] = []
    for lease in fair(waiting, Counter(each.client for each in placed), served):
        able = [node for node in joined if not node.lacks(lease.image, now)]
        if joined and not able:
            whys = sorted({node.absent[lease.image][1] for node in joined})
            never[lease.id] = ImageMissing(f"on {len(joined)} of {len(joined)} hosts: {'; '.join(whys)}")
        elif able and all(whys := [node.never(lease) for node in able]):
            never[lease.id] = Refused(whys[0])
        elif free <= 0 or reserved >= healthy:
            break
        else:
            open_to = [node for node in able if node.url in healthy - reserved]
            node = choose(lease, open_to, used, now)
            if node is None:
                if lease.passed >= PASSES and (own := _node_to_reserve(lease, open_to, used)):
                    lease.keeps = own
                    reserved.add(own)
                late.append(lease)
                continue
            for each in late:
                each.passed += not node.lacks(each.image, now)
            use = used.setdefault(node.url, Use())
            use.places, use.memory, free = use.places + 1, use.memory + lease.memory, free - 1
            going.append((lease, node))
    return going, never
