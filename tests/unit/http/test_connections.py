"""With too many connections those without a token are closed first, then idle ones, never one in use."""

import socket

import pytest

from swelab.http.connections import Connections, network

FAR = "192.0.2.1"


@pytest.fixture
def pairs():
    made = []
    yield made
    for pair in made:
        for each in pair:
            each.close()


@pytest.fixture
def connect(pairs):
    def connect(registry, address, port):
        pairs.append(socket.socketpair())
        registry.add(pairs[-1][0], (address, port))
        return pairs[-1][1]

    return connect


def is_cut(end):
    end.setblocking(False)
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False


def test_the_limit_of_an_address_closes_its_oldest_unauthenticated_connection(connect):
    registry = Connections(40)
    other = connect(registry, "192.0.2.2", 1)
    many = [connect(registry, FAR, port) for port in range(30)]
    assert [is_cut(each) for each in many] == [True] * 20 + [False] * 10 and not is_cut(other)
    assert registry.counts() == {"connections": 11, "connections_outside": 11, "connections_cut_total": 20}


def test_the_limit_of_all_addresses_closes_the_oldest_of_the_fullest(connect):
    registry = Connections(40)
    many = [connect(registry, f"192.0.2.{n}", 1) for n in range(60)]
    assert sum(map(is_cut, many)) == 40 and registry.counts()["connections"] == 20


def test_a_server_may_allow_fewer_unauthenticated_connections(connect):
    registry = Connections(40, unauthenticated=2)
    ends = [connect(registry, f"192.0.2.{number}", number) for number in range(1, 4)]
    assert [is_cut(end) for end in ends] == [True, False, False]
    same = [connect(registry, "192.0.2.9", number) for number in range(3)]
    assert [is_cut(end) for end in same] == [True, True, False], "the address with most loses its oldest"
    assert not is_cut(ends[2])


def test_who_has_shown_a_token_stays_whatever_others_do(connect):
    registry = Connections(40)
    known = [connect(registry, FAR, port) for port in range(9)]
    for port in range(9):
        assert registry.start_request((FAR, port), "token")
        registry.end_request((FAR, port))
    for port in range(100, 400):
        connect(registry, f"192.0.2.{port % 50}", port)
    assert not any(map(is_cut, known))
    assert registry.counts()["connections_outside"] <= 20


def test_a_token_has_a_part_of_all_connections(connect):
    registry = Connections(8)
    ends = {}
    for port in range(6):
        ends[port] = connect(registry, FAR, port)
        assert registry.start_request((FAR, port), "token")
    connect(registry, FAR, 6)
    assert not registry.start_request((FAR, 6), "token"), "it got more than its part"
    assert registry.start_request((FAR, 6), "token") is False
    registry.end_request((FAR, 0))
    assert registry.start_request((FAR, 6), "token") and is_cut(ends[0]) and not is_cut(ends[1])
    connect(registry, FAR, 7)
    assert registry.start_request((FAR, 7), "another")


def test_what_is_closed_is_forgotten(connect, pairs):
    registry = Connections(40)
    connect(registry, FAR, 1)
    connect(registry, FAR, 2)
    registry.start_request((FAR, 2), "token")
    registry.end((FAR, 1))
    registry.end((FAR, 1))
    registry.end((FAR, 2))
    registry.end_request((FAR, 2))
    assert registry.counts()["connections"] == 0 == registry.counts()["connections_outside"]
    connect(registry, FAR, 3)
    connect(registry, FAR, 4)
    pairs[-1][0].close()
    assert registry.counts()["connections"] == 1, "it was closed by somebody else"
    pairs.pop(-2)
    assert registry.counts()["connections"] == 0, "nothing held it but the registry"


def test_one_machine_has_all_of_a_network_of_ipv6():
    assert network("2001:db8::1") == network("2001:db8::ffff:1") != network("2001:db8:0:1::1")
    assert network("192.0.2.1") != network("192.0.2.2") and network("fe80::1%eth0") == network("fe80::2")
