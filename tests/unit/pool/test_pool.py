"""The memory of a pool: responses given once, leases written to disk, errors sent to clients."""

import asyncio
import errno
import gc
import sqlite3
import weakref
from types import SimpleNamespace

import pytest

from swelab.pool import idempotency, leases
from swelab.pool.budget import Budget
from swelab.pool.idempotency import Conflict, Once, Shelf
from swelab.pool.lease_store import LeaseStore
from swelab.pool.leases import EndedLeases, Lease
from swelab.pool.pool import Pool, PoolLimits
from swelab.pool.pool_server import drain, join, leave, take_in
from swelab.pool.request_schemas import PoolRequest
from swelab.records import InputError
from swelab.sandbox import EngineDown, ImageMissing, Limits, PathRefused, SandboxError, SandboxLost
from swelab.sandbox.remote_protocol import NoPlace, NotReached, Refused, error_record, find_token, told_error
from tests.contract.attacks import PATIENCE
from tests.loop_turns import one_turn


def test_work_is_done_once_for_an_id_also_when_who_asked_goes_away():
    async def main():
        once, count, go = Once(size=len, most=2), [], asyncio.Event()

        async def work():
            await go.wait()
            count.append(1)
            return "x" * len(count)

        first = asyncio.ensure_future(once.run("a", "f", work))
        await one_turn()
        first.cancel()
        await one_turn()
        go.set()
        assert await once.run("a", "f", work) == "x" == await once.run("a", "f", work)
        with pytest.raises(Conflict):
            await once.run("a", "other", work)
        for key in "bcd":
            await once.run(key, "f", work)
        with pytest.raises(SandboxLost, match="not kept any more"):
            await once.run("a", "f", work)
        assert await once.run(None, "f", work) == "xxxxx" and len(count) == 5

    asyncio.run(main())


def test_of_ended_leases_names_and_reasons_stay(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def end(number):
        made = Lease(f"request-{number}", PoolRequest(tree=True), reason=f"because {number}")
        return made, ended.add(made)

    ended = EndedLeases(most=2, seconds=900)
    made = [end(number)[0] for number in range(2)]
    assert ended.find(made[0].id).reason == "because 0" and ended.of_request("request-1").id == made[1].id
    third, forgotten = end(2)
    assert (forgotten, ended.find(made[0].id), ended.of_request("request-0")) == ([made[0].id], None, None)
    gone = weakref.ref(made.pop(1))
    gc.collect()
    assert gone() is None and len(ended) == 2
    now[0] += 901
    assert set(end(3)[1]) > {third.id} and len(ended) == 1


class Big:
    """A large response."""


def test_what_is_kept_of_requests_is_bounded_in_bytes_and_time():
    async def main():
        shelf, made = Shelf(most=1000, seconds=900), []
        rude, other = (Once(size=lambda answer: 300, shelf=shelf) for _ in range(2))

        async def work():
            answer = Big()
            made.append(weakref.ref(answer))
            return answer

        first = weakref.ref(await other.run("first-one", "f", work))
        for number in range(20):
            await rude.run(f"request-{number}", "f", work)
            await one_turn()
        assert shelf.size() <= 1000 and sum(each() is not None for each in made) <= 3
        assert await other.run("first-one", "f", work) is first(), "a neighbour lost its answer"
        with pytest.raises(SandboxLost, match="not kept any more"):
            await rude.run("request-0", "f", work)
        shelf.seconds = 0
        shelf.clear()
        assert shelf.size() == 0 and all(each() is None for each in made)

    asyncio.run(main())


def test_that_there_was_an_answer_is_known_for_a_while(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(idempotency, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def main():
        once = Once(most=1, known_seconds=10)

        async def work():
            return "x"

        for number in range(200):
            await once.run(f"request-{number}", "f", work)
        assert once.knows("request-198")
        now[0] = 11
        await once.run("another", "f", work)
        await once.run("one more", "f", work)
        assert len(once._abandoned) <= 2 and not once.knows("request-198") and once.knows("another")

    asyncio.run(main())


def test_a_budget_is_never_exceeded_and_nobody_waits_for_ever():
    async def main():
        budget, most, done = Budget("disk", 100, patience=PATIENCE), [], []

        async def use(key, size):
            async with budget.hold(key, size) as grant:
                most.append(budget.used)
                await one_turn()
                grant.keep(size // 2)
                await one_turn()
            done.append(key)

        await asyncio.gather(*(use("rude", 30) for _ in range(50)), *(use(f"c{n}", 40) for n in range(20)))
        assert max(most) <= 100 and budget.used == 0 and len(done) == 70
        assert done.index("c19") < 60, "one key kept the others off"

    asyncio.run(main())


def test_a_budget_refuses_by_name():
    async def main():
        budget = Budget("this host's disk", 100, patience=0.05)
        with pytest.raises(Refused, match="this host's disk: 89 bytes asked for; a request gets at most 88"):
            await budget.hold("a", 89).__aenter__()
        async with budget.hold("a", 88) as whole:
            with pytest.raises(NotReached, match="not free in time"):
                await budget.hold("b", 10).__aenter__()
            with pytest.raises(Refused):
                await whole.reach(89)
            whole.keep(40)
            async with budget.hold("b", 30) as small:
                with pytest.raises(NotReached):
                    await small.reach(70)
            waits = asyncio.ensure_future(budget.hold("b", 50).__aenter__())
            await one_turn()
            waits.cancel()
        await one_turn()
        assert budget.used == 0

    asyncio.run(main())


def test_failures_are_kept_or_not():
    async def main():
        tries = []

        async def fail():
            tries.append(1)
            raise SandboxLost("no")

        for kept, expected in ((True, 1), (False, 3)):
            tries.clear()
            once = Once(keep_errors=kept)
            for _ in range(3):
                with pytest.raises(SandboxLost):
                    await once.run("a", "f", fail)
            assert len(tries) == expected

    asyncio.run(main())


def lease(number, state="active"):
    names = {"node": "http://n", "attempt": 1, "container": "c", "reason": ""}
    asked = PoolRequest(tree=True, limits=vars(Limits()))
    named = {"id": f"swe-lease-{number:032x}", "request_id": f"request-{number}"}
    return {**named, "asked": asked, "state": state, **names}


def test_leases_and_nodes_outlive_the_server(tmp_path):
    path = tmp_path / "state" / "pool.sqlite"
    store = LeaseStore(path)
    name = store.pool_id()
    store.set_node("http://n", False)
    store.set_node("http://n", True)
    store.set_lease(lease(1, "making"))
    store.set_lease(lease(2))
    store.set_lease(lease(1))
    store.drop_lease(lease(2)["id"])
    with pytest.raises(InputError, match="another pool server holds it"):
        LeaseStore(path)
    store.close()
    again = LeaseStore(path)
    assert (again.pool_id(), again.nodes(), again.leases()) == (name, {"http://n": True}, [lease(1)])
    for each in path.parent.iterdir():
        assert each.stat().st_mode & 0o077 == 0, each
    again.close()


def test_nodes_of_the_command_line_join_those_of_an_earlier_start(tmp_path):
    path = tmp_path / "pool.sqlite"
    store = LeaseStore(path)
    assert take_in(store, ["http://a:5000/"]) == ""
    store.set_node("http://a:5000", True)
    store.close()
    store = LeaseStore(path)
    told = take_in(store, ["http://a:5000", "http://b:5000", "http://b:5000/"])
    assert told == "nodes of an earlier start: http://a:5000 (drained); added: http://b:5000"
    assert store.nodes() == {"http://a:5000": True, "http://b:5000": False}
    assert take_in(store, []).endswith("http://b:5000; added: none")
    with pytest.raises(InputError, match="--node here; expected an address such as http://host:5000"):
        take_in(store, ["http://c:5000", "here"])
    assert len(store.nodes()) == 2
    store.drop_node("http://b:5000")
    told = take_in(store, ["http://a:5000", "http://b:5000"])
    assert told.endswith("added: none; not added, as they left by request: http://b:5000")
    store.set_node("http://b:5000", False)  # it joined by a request
    assert "left" not in take_in(store, ["http://b:5000"]) and len(store.nodes()) == 2
    store.close()


def test_a_damaged_row_is_set_aside_and_the_rest_is_as_before(tmp_path, caplog):
    path = tmp_path / "pool.sqlite"
    store = LeaseStore(path)
    store.set_node("http://n", False)
    for number in range(1, 8):
        store.set_lease(lease(number))
    store.close()
    with sqlite3.connect(path) as base:
        base.execute("UPDATE leases SET asked = substr(asked, 1, 20) WHERE number = 1")
        base.execute("UPDATE leases SET asked = CAST(x'ff00' AS TEXT) WHERE number = 2")
        base.execute("UPDATE leases SET state = 'aktive' WHERE number = 3")
        base.execute("UPDATE leases SET asked = '{\"privileged\": true}' WHERE number = 4")
        base.execute("UPDATE leases SET id = 'x' WHERE number = 5")
        base.execute("UPDATE leases SET attempt = 'one' WHERE number = 6")
        base.execute("INSERT INTO nodes VALUES ('file:///etc/passwd', 0)")
    for expected in (7, 0):
        caplog.clear()
        store = LeaseStore(path)
        assert (store.leases(), store.nodes()) == ([lease(7)], {"http://n": False})
        assert sum("is damaged and set aside" in each.getMessage() for each in caplog.records) == expected
        store.close()
    with sqlite3.connect(path) as base:
        assert base.execute("SELECT count(*) FROM damaged").fetchone() == (7,)


def test_a_file_with_damaged_pages_is_said_in_one_line(tmp_path):
    path = tmp_path / "pool.sqlite"
    store = LeaseStore(path)
    for number in range(200):
        store.set_lease(lease(number))
    store.close()
    whole = bytearray(path.read_bytes())
    whole[8192:16384] = b"\xa5" * 8192
    path.write_bytes(whole)
    with pytest.raises(InputError, match="cannot be used"):
        LeaseStore(path)


@pytest.mark.parametrize(
    "error",
    [
        *(SandboxLost("x"), EngineDown("x"), ImageMissing("x"), PathRefused("x"), SandboxError("x")),
        *(NoPlace("x"), NotReached("x"), Refused("x"), ValueError("x")),
        *(OSError(errno.ENOSPC, "No space left", "f"), FileNotFoundError(errno.ENOENT, "none", "a/b")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_keep_their_type_and_words(error):
    status, record = error_record(error)
    told = told_error(status, record)
    assert type(told) is type(error) and str(told) == str(error) and status >= 400
    assert getattr(told, "errno", None) == getattr(error, "errno", None)


def test_tokens(tmp_path, monkeypatch):
    monkeypatch.delenv("SWELAB_POOL_TOKEN_FILE", raising=False)
    path = tmp_path / "token"
    path.write_text("t" * 24 + "\n")
    path.chmod(0o600)
    assert find_token(path) == "t" * 24
    path.chmod(0o640)
    with pytest.raises(InputError, match="others can read the token"):
        find_token(path)
    for text in ("", "short", "with a space in the middle of it", "t" * 30 + "\u00fc"):
        monkeypatch.setenv("SWELAB_POOL_TOKEN", text)
        with pytest.raises(InputError, match="no token"):
            find_token()
    monkeypatch.setenv("SWELAB_POOL_TOKEN", "e" * 30)
    assert find_token() == "e" * 30
    with pytest.raises(InputError, match="cannot be read"):
        find_token(tmp_path / "nothing")


class Host:
    """The minimal interface of a host that a pool uses."""

    def __init__(self, boot="b"):
        self.boot = boot

    async def ask(self, path, body, seconds):
        room = {"max_containers": 9, "max_memory_bytes": 1 << 50, "active_containers": 0, "memory_bytes": 0}
        told = {"boot": self.boot, "healthy": True, "unknown": [], "extra": {}, **room}
        return {"container_id": body["request_id"]} if path == "/container/create" else told

    async def close(self):
        pass


async def later(call, *arguments):
    return call(*arguments)


def test_only_who_has_made_an_image_is_preferred_for_it(tmp_path):
    """A host that had made a sandbox without an image used to get the next ones, too."""

    async def main():
        store = LeaseStore(tmp_path / "pool.sqlite")
        for name in "abc":
            store.set_node(f"http://{name}", False)
        hosts = iter(range(100))
        pool = Pool(store, PoolLimits(), lambda url: Host(f"boot-{next(hosts)}"))
        pool.start()
        for number in range(6):
            asked = PoolRequest(request_id=f"request-{number}", tree=True)
            await pool.allocate(asked, 5, asyncio.get_running_loop().create_future())
        nodes = [lease.node for lease in pool.leases.values()]
        await pool.stop()
        return nodes

    assert sorted(asyncio.run(main())) == [f"http://{name}" for name in "aabbcc"]


def test_a_full_disk_stops_the_lending_and_nothing_else(tmp_path):
    async def main():
        store = LeaseStore(tmp_path / "pool.sqlite")
        store.set_node("http://n", False)
        pool = Pool(store, PoolLimits(), lambda url: Host())
        pool.start()

        async def lend(name):
            here = asyncio.get_running_loop().create_future()
            return await pool.allocate(PoolRequest(request_id=name, tree=True), PATIENCE, here)

        first = await lend("first")
        store._base.execute("PRAGMA query_only = 1")
        with pytest.raises(EngineDown, match="cannot write down"):
            await lend("second")
        first.ends = 0.0  # nobody renewed it
        await asyncio.wait_for(first.over.wait(), PATIENCE)
        assert pool.counts["unwritten"] > 0 and pool.leases == {}
        url = "http://n"
        for change in (later(drain, pool, url), join(pool, url), leave(pool, url, True)):
            with pytest.raises(OSError, match="cannot be written, so nothing was changed"):
                await change
        assert list(pool.nodes) == ["http://n"] and not pool.nodes["http://n"].capacity.draining
        store._base.execute("PRAGMA query_only = 0")
        assert (await lend("third")).state == "active"
        await pool.stop()

    asyncio.run(main())
