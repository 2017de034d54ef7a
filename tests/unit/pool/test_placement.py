"""Which waiting request gets a slot, and where: no limit is exceeded and no request starves, in any state."""

import random
from collections import Counter

from swelab.pool.leases import ACTIVE, ENDED, ENDING, MAKING, Lease
from swelab.pool.placement import PASSES, NodeCapacity, choose, fair, plan, uses
from swelab.pool.request_schemas import PoolRequest

GIB = 1 << 30


def lease(number, run="", image="", state="waiting", node="", memory=GIB):
    files = {"disk_bytes": GIB // 4, "shm_bytes": GIB // 8, "output_bytes": GIB // 8}
    limits = {"memory_bytes": memory - sum(files.values()), **files}
    asked = PoolRequest(client=run, image=image, limits=limits)
    return Lease(f"request-{number}", asked, state=state, node=node)


def node(url, places=4, memory=64 * GIB, **more):
    return NodeCapacity(url, healthy=True, most_places=places, most_memory=memory, **more)


def where(waiting, nodes, leases=(), most=1000, now=0.0):
    going, never = plan(waiting, nodes, leases, most, now)
    return [(waiting.index(each), chosen.url) for each, chosen in going], never


def test_the_emptiest_host_and_rather_one_that_knows_the_image():
    nodes = [node("a"), node("b"), node("c", warm={"i "})]
    here = [lease(9, state=ACTIVE, node="a"), lease(8, state=ACTIVE, node="c")]
    assert choose(lease(0), nodes, uses(here), 0).url == "b"
    assert choose(lease(0, image="i"), nodes, uses(here), 0).url == "c"  # 1 of 4 slots, minus three tenths
    here.append(lease(7, state=ACTIVE, node="c"))
    assert choose(lease(0, image="i"), nodes, uses(here), 0).url == "b"


def test_what_counts_as_a_place():
    states = [lease(n, state=state, node="a") for n, state in enumerate((MAKING, ACTIVE, ENDING, ENDED))]
    assert uses(states)["a"].places == 3 and uses(states)["a"].memory == 3 * GIB


def test_a_name_that_a_client_invents_changes_nothing():
    waiting = [lease(0, "one"), lease(1, "one"), lease(2, "one")]
    waiting[2].request["run"] = "another"
    assert fair(waiting, Counter({"one": 5})) == waiting


def test_who_has_little_comes_first_and_then_who_came_first():
    waiting = [lease(0, "big"), lease(1, "big"), lease(2, "small"), lease(3, "big"), lease(4, "small")]
    order = fair(waiting, Counter({"big": 1}))
    assert [waiting.index(each) for each in order] == [2, 0, 4, 1, 3]


def serve(waiting, nodes, held):
    """Places all requests that can be placed, and returns them."""
    going, _ = plan(waiting, nodes, held, 1000, 0.0)
    for each, chosen in going:
        each.state, each.node = ACTIVE, chosen.url
    return [each for each, _ in going]


def test_small_ones_pass_a_large_one_that_waits():
    held = [lease(n, state=ACTIVE, node="a", memory=2 * GIB) for n in range(3)]
    large, small = lease(10, "x", memory=4 * GIB), [lease(n, "y") for n in range(20, 22)]
    assert serve([large, *small], [node("a", places=99, memory=8 * GIB)], held) == small


def test_a_large_one_is_not_starved():
    """Small requests keep coming as fast as others end. The large request still gets a slot."""
    nodes = [node("a", places=99, memory=8 * GIB), node("b", places=99, memory=8 * GIB)]
    held, large, count = [], lease(0, memory=8 * GIB), 100
    held = [lease(n, state=ACTIVE, node="ab"[n % 2]) for n in range(1, 17)]
    for _ in range(PASSES + 40):
        count += 16
        small = [lease(count + n) for n in range(16)]
        held += serve([large, *small], nodes, held)
        if large.state == ACTIVE:
            break
        assert large.passed <= PASSES + 16
        held.pop(0)
    assert large.state == ACTIVE
    others = sum(each.node != large.node for each in held)
    assert others == 8, "a host that was not kept stood empty"


def test_what_can_never_be_placed_is_said():
    nodes = [
        node("a", absent={"i ": (10.0, "no i")}),
        node("b", absent={"i ": (10.0, "no i")}, memory=2 * GIB),
    ]
    waiting = [lease(0, image="i"), lease(1, memory=100 * GIB), lease(2, memory=3 * GIB)]
    going, never = where(waiting, nodes)
    assert going == [(2, "a")]
    assert str(never[waiting[0].id]) == "on 2 of 2 hosts: no i" and "memory" in str(never[waiting[1].id])
    assert where(waiting[:1], nodes, now=11.0)[0] == [(0, "a")]  # requested again after a while
    assert where(waiting, []) == ([], {})
    nodes[0].healthy = nodes[0].draining = False
    assert where([lease(0)], [NodeCapacity("new")]) == ([], {})


def test_limits_beyond_those_of_every_host_are_refused_at_once_and_others_find_their_host():
    small, large = node("a", most_limits={"processes": 64}), node("b", most_limits={"processes": 512})
    waiting = [lease(0), lease(1)]
    waiting[0].request["limits"] = {**waiting[0].request.limits, "processes": 4096}
    waiting[1].request["limits"] = {**waiting[1].request.limits, "processes": 256}
    held = [lease(9, state=ACTIVE, node="a"), lease(8, state=ACTIVE, node="b")]
    small.most_places = large.most_places = 1
    going, never = where(waiting, [small, large], held)
    assert going == [] and list(never) == [waiting[0].id]
    assert str(never[waiting[0].id]) == "limits.processes: 4096; expected at most 64"
    large.most_places = 2
    assert where(waiting[1:], [small, large], held)[0] == [(0, "b")]


def test_drained_sick_full_and_shy_hosts_get_nothing():
    nodes = [node("a", draining=True), node("b", places=1, foreign_places=1), node("c", paused_until=5.0)]
    nodes += [
        node("d", memory=2 * GIB, foreign_memory=2 * GIB),
        NodeCapacity("e", most_places=4, most_memory=64 * GIB),
    ]
    assert where([lease(0)], nodes, now=4.0) == ([], {})
    assert where([lease(0)], nodes, now=5.0) == ([(0, "c")], {})


def test_no_plan_exceeds_a_limit_whatever_the_state():
    chance = random.Random(7)
    for _ in range(300):
        nodes = [
            node(name, places=chance.randrange(1, 5), memory=chance.randrange(1, 12) * GIB)
            for name in "abcd"[: chance.randrange(1, 5)]
        ]
        held = [
            lease(n, "x", state=ACTIVE, node=chance.choice(nodes).url, memory=chance.randrange(1, 4) * GIB)
            for n in range(chance.randrange(4))
        ]
        waiting = [
            lease(n, chance.choice("xyz"), chance.choice("ij"), memory=chance.randrange(1, 14) * GIB)
            for n in range(chance.randrange(12))
        ]
        most = chance.randrange(1, 10)
        going, never = plan(waiting, nodes, held, most, 0.0)
        assert len({each.id for each, _ in going} | set(never)) == len(going) + len(never)
        assert len(going) + len(held) <= max(most, len(held))
        for each in nodes:
            new = [got for got, chosen in going if chosen is each]
            old = [got for got in held if got.node == each.url]
            if new:
                assert len(new) + len(old) <= each.most_places
                assert sum(got.memory for got in new + old) <= each.most_memory
        if not going and not never and waiting and len(held) < most:
            first = fair(waiting, Counter(got.client for got in held))[0]
            assert choose(first, nodes, uses(held), 0.0) is None
