"""Silent connections are never set up. The others are set up in turns of their addresses."""

import asyncio
import socket
from contextlib import ExitStack

import pytest

from swelab.http import lobby as lobbies
from swelab.http.connections import Connections
from swelab.http.lobby import Lobby
from tests.contract.attacks import PATIENCE
from tests.loop_turns import one_turn


class Hall:
    """A lobby in a running loop.

    It records which connections were set up, and how many per iteration of the loop.
    """

    def __init__(self, stack):
        self.listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
        self.listening.setblocking(False)
        self.registry, self.set_up, self.rounds, self.stack = Connections(400), [], [0], stack
        self.lobby = Lobby(asyncio.get_running_loop(), self.listening, self.registry, self.met)

    async def met(self, taken):
        self.set_up.append(taken.getpeername())
        self.rounds[-1] += 1
        self.stack.enter_context(taken)

    def come(self, address="127.0.0.1", said=b""):
        made = self.stack.enter_context(socket.socket())
        made.bind((address, 0))
        made.connect(self.listening.getsockname())
        made.sendall(said)
        return made

    async def pass_time(self, done):
        async with asyncio.timeout(PATIENCE):
            while not done():
                self.rounds.append(0)
                await one_turn()


def in_hall(work):
    async def main():
        with ExitStack() as stack:
            hall = Hall(stack)
            try:
                return await work(hall)
            finally:
                hall.lobby.close()
                await hall.lobby.wait_closed()

    return asyncio.run(main())


def is_closed(end):
    end.setblocking(False)
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_who_says_nothing_is_not_set_up_and_leaves_after_a_while(monkeypatch):
    async def work(hall):
        monkeypatch.setattr(lobbies, "HEAD_SECONDS", PATIENCE)
        silent = [hall.come() for _ in range(50)]
        await hall.pass_time(lambda: hall.registry.counts()["connections"] == 50)
        speaking = hall.come(said=b"G")
        await hall.pass_time(lambda: hall.set_up)
        assert hall.set_up == [speaking.getsockname()] and not any(map(is_closed, silent))
        monkeypatch.setattr(lobbies, "HEAD_SECONDS", 0.0)
        await hall.pass_time(lambda: all(map(is_closed, silent)))
        assert hall.registry.counts()["connections"] == 1 == len(hall.set_up)

    in_hall(work)


def test_who_goes_again_was_never_set_up():
    async def work(hall):
        gone = [hall.come() for _ in range(20)]
        await hall.pass_time(lambda: hall.registry.counts()["connections"] == 20)
        for each in gone:
            each.close()
        await hall.pass_time(lambda: hall.registry.counts()["connections"] == 0)
        assert hall.set_up == []

    in_hall(work)


def test_a_few_are_set_up_each_time_round_and_addresses_take_turns():
    async def work(hall):
        many = [hall.come(said=b"G") for _ in range(60)]
        one = hall.come("127.0.0.2", said=b"G")
        await hall.pass_time(lambda: len(hall.set_up) == 61)
        assert max(hall.rounds) <= 8 and hall.set_up.index(one.getsockname()) < 16
        assert {each.getsockname() for each in many} < set(hall.set_up)

    in_hall(work)


def test_a_lobby_that_is_closed_leaves_nobody_waiting():
    async def work(hall):
        silent = [hall.come() for _ in range(3)]
        await hall.pass_time(lambda: hall.registry.counts()["connections"] == 3)
        hall.lobby.close()
        hall.lobby.close()
        await hall.pass_time(lambda: all(map(is_closed, silent)))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", silent[0].getpeername()[1]))

    in_hall(work)


def test_without_free_files_it_waits_and_goes_on(monkeypatch):
    monkeypatch.setattr(lobbies, "_LOOK_SECONDS", 0.05)

    async def work(hall):
        class Full:
            def fileno(self):
                return hall.listening.fileno()

            def accept(self):
                hall.lobby._listener = hall.listening
                raise OSError(24, "Too many open files")

        hall.lobby._listener = Full()
        hall.come(said=b"G")
        await hall.pass_time(lambda: hall.set_up)

    in_hall(work)
