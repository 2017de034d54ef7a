"""Measures a pool under polite clients, rude clients and kills: lost leases, latency, memory, leftovers.

The hosts are processes of `benchmarks.pool_world`: complete exec servers whose sandboxes are folders. There
are three phases: polite clients alone, then also rude clients, and then kills of the pool server and of hosts
in turn. With `--soak-minutes`, rollouts come and go instead, and the growth of each server's memory is
measured.
"""

import argparse
import asyncio
import multiprocessing
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import linear_regression, quantiles

from benchmarks.pool_clients import Caller, Counts, polite
from benchmarks.pool_rude import rude_client

_BURST_SECONDS = 5.0  # seconds at the start of a phase, while all rude clients start to misbehave
_SLOPE_EVERY = 5.0


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, numbers[11:15])) / os.sysconf("SC_CLK_TCK")


class Server:
    """A server process that prints its address. A restart uses the same port. peak: bytes."""

    def __init__(self, module: str, folder: Path, *words: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port, self.peak, self.url = folder, "0", 0, ""
        self._words = [sys.executable, "-m", module, *map(str, words)]
        self.start()

    def start(self) -> None:
        """Starts the process, and returns when it serves."""
        words = ["setpriv", "--pdeathsig=KILL", *self._words, "--port", self.port]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.fullmatch(r".* at (https?://.*:(\d+))\n", line)
        if not match:
            sys.exit(f"{self._words[2]} did not start: {(self.folder / 'log').read_text()[-2000:]}")
        self.url, self.port = match[1], match[2]

    def memory(self, name: str = "VmRSS") -> int:
        """Bytes, of /proc/PID/status."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(rf"{name}:\s+(\d+)", status)
        return int(match[1]) << 10 if match else 0

    def cpu(self) -> float:
        """CPU seconds of the server and its children."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(cpu_seconds(int(each)) for each in (pid, *children))

    def end(self, how: int = signal.SIGKILL) -> None:
        """Ends the server with the signal `how`, and records its peak memory."""
        self.peak = max(self.peak, self.memory("VmHWM"))
        self.process.send_signal(how)
        self.process.wait(60)


class World:
    """A pool and its hosts."""

    def __init__(self, folder: Path, hosts: int, places: int, ttl: float) -> None:
        self.tokens = {name: folder / f"{name}.token" for name in ("client", "rude", "node", "pool")}
        for path in self.tokens.values():
            path.touch(0o600)
            path.write_text(secrets.token_urlsafe(32) + "\n")
        both = [self.token(name) for name in ("client", "rude")]
        self.tokens["pool"].write_text("\n".join(both) + "\n")
        own = ["--token", self.tokens["node"], "--max-containers", places, "--memory-gib", 64]
        self.hosts = [
            Server("benchmarks.pool_world", folder / f"host{n}", "--root", folder / f"host{n}" / "root", *own)
            for n in range(hosts)
        ]
        words: list[object] = ["--token", self.tokens["pool"], "--node-token", self.tokens["node"]]
        words += ["--state", folder / "pool.sqlite", "--ttl", ttl, "--max-leases", 4 * hosts * places]
        for host in self.hosts:
            words += ["--node", host.url]
        self.pool = Server("scripts.pool_server", folder / "pool", *words)

    def token(self, name: str) -> str:
        """A token's text."""
        return self.tokens[name].read_text().strip()

    def folders(self) -> int:
        """Returns the number of existing sandboxes."""
        return sum(len(list((host.folder / "root").iterdir())) for host in self.hosts)

    def close(self) -> None:
        """End all."""
        for server in (self.pool, *self.hosts):
            server.end(signal.SIGTERM)


def latency(seconds: list[float]) -> tuple[float, float]:
    """Returns (p50, p99) in milliseconds."""
    cuts = quantiles(seconds, n=100) if len(seconds) > 1 else [0.0] * 99
    return cuts[49] * 1000, cuts[98] * 1000


class Crowd:
    """The rude clients. `processes` is empty until they are started."""

    def __init__(self, world: World, count: int, pause: float) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.misbehave = spawn.Event()
        given = world.pool.url, world.token("rude")
        self.processes = [
            spawn.Process(target=rude_client, args=(*given, number, self.misbehave, pause), daemon=True)
            for number in range(count)
        ]
        for each in self.processes:
            each.start()

    def end(self) -> None:
        """Kill them."""
        for each in self.processes:
            each.kill()


def cpu_by_user(world: World, crowd: Crowd) -> dict[str, float]:
    """Maps pool, hosts, polite and rude clients to the CPU seconds that they have used so far."""
    rude = sum(cpu_seconds(each.pid) for each in crowd.processes if each.pid)
    hosts = sum(each.cpu() for each in world.hosts)
    return {"pool": world.pool.cpu(), "hosts": hosts, "polite": cpu_seconds(os.getpid()), "rude": rude}


async def phase(name: str, world: World, crowd: Crowd, counts: Counts, seconds: float) -> tuple[float, float]:
    """Runs and prints one of the two measured phases. Returns (p50, p99) of `exec` in milliseconds."""
    before, began = counts.lost, cpu_by_user(world, crowd)
    counts.seconds.clear()
    counts.servers.clear()
    await asyncio.sleep(min(_BURST_SECONDS, seconds))
    burst = len(counts.seconds)
    await asyncio.sleep(max(seconds - _BURST_SECONDS, 0))
    (p50, p99), own = latency(counts.seconds), latency(counts.servers)
    later = latency(counts.seconds[burst:])
    print(f"{name}: exec p50={p50:.1f} ms p99={p99:.1f} ms n={len(counts.seconds)}")
    print(f"{name}_after_the_first_{_BURST_SECONDS:.0f}_s: p50={later[0]:.1f} ms p99={later[1]:.1f} ms")
    print(f"{name}_without_the_command: p50={own[0]:.1f} ms p99={own[1]:.1f} ms")
    share = {who: (now - began[who]) / seconds for who, now in cpu_by_user(world, crowd).items()}
    cores = " ".join(f"{who}={value:.2f}" for who, value in share.items())
    print(f"{name}_cores: {cores} all={sum(share.values()):.2f} of {os.cpu_count()}")
    print(f"{name}_lost_leases={counts.lost - before}", flush=True)
    return p50, p99


async def load(world: World, args: argparse.Namespace) -> Counts:
    """Runs and prints the three phases."""
    url, token, stop, counts = world.pool.url, world.token("client"), asyncio.Event(), Counts()
    rude = round(args.clients * args.rude)
    kind = args.clients - rude
    shares = [args.leases // kind + (n < args.leases % kind) for n in range(kind)]
    clients = [Caller(url, token) for _ in shares]
    work = [polite(each, n, counts, stop, args.pause) for each, n in zip(clients, shares)]
    working = [asyncio.ensure_future(each) for each in work]
    crowd = Crowd(world, rude, args.pause / max(shares))
    try:
        await asyncio.sleep(min(30.0, args.seconds))  # all have their leases
        quiet = await phase("quiet", world, crowd, counts, args.seconds)
        crowd.misbehave.set()
        beside = await phase("rude", world, crowd, counts, args.seconds)
    finally:
        crowd.end()
    print(f"latency_ratio_p50={beside[0] / max(quiet[0], 1e-9):.2f}")
    print(f"latency_ratio_p99={beside[1] / max(quiet[1], 1e-9):.2f}", flush=True)
    await kills(world, args.kills, counts)
    stop.set()
    await asyncio.gather(*working)
    return counts


async def kills(world: World, count: int, counts: Counts) -> None:
    """Kills and restarts the pool server several times, and then the hosts in turn."""
    before = counts.lost
    for _ in range(count):
        await asyncio.sleep(2.0)
        world.pool.end()
        await asyncio.to_thread(world.pool.start)
    print(f"pool_kills={count} lost_leases={counts.lost - before}")
    before, sandboxes = counts.lost, 0
    for number in range(count):
        await asyncio.sleep(2.0)
        host = world.hosts[number % len(world.hosts)]
        sandboxes += len(list((host.folder / "root").iterdir()))
        host.end()
        await asyncio.to_thread(host.start)
    await asyncio.sleep(5.0)
    print(f"host_kills={count} lost_leases={counts.lost - before} held_there_at_most={sandboxes}", flush=True)


async def soak(world: World, minutes: float, rate: float) -> None:
    """Starts `rate` rollouts per minute. Prints each server's memory growth in the second half."""
    caller, ends, began = Caller(world.pool.url, world.token("client")), time.monotonic() + minutes * 60, 0.0
    servers = {"pool": world.pool, **{f"host{n}": host for n, host in enumerate(world.hosts)}}
    measurements: list[tuple[float, dict[str, int]]] = []
    counts, running = Counts(), set()
    while time.monotonic() < ends:
        stop = asyncio.Event()
        task = asyncio.ensure_future(polite(caller, 1, counts, stop, 0.5))
        running.add(task)
        task.add_done_callback(running.discard)
        asyncio.get_running_loop().call_later(5.0, stop.set)
        if time.monotonic() - began > _SLOPE_EVERY:
            began = time.monotonic()
            measurements.append((began / 60, {name: each.memory() for name, each in servers.items()}))
        await asyncio.sleep(60 / rate)
    await asyncio.gather(*running)
    half = measurements[len(measurements) // 2 :]
    for name in servers:
        values = [memory[name] / 1024 for _, memory in half]
        slope = linear_regression([moment for moment, _ in half], values).slope if len(half) > 1 else 0.0
        print(f"{name}: {values[-1] / 1024:.1f} MiB, memory_slope={slope:.1f} KiB a minute")
    print(f"soak_execs={counts.done} lost_leases={counts.lost} doubled={counts.doubled}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=500)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rude", type=float, default=0.1, help="share of clients that misbehave")
    parser.add_argument("--seconds", type=float, default=60, help="of the quiet phase, and of the rude one")
    parser.add_argument("--pause", type=float, default=12.0, help="seconds between commands in a sandbox")
    parser.add_argument("--kills", type=int, default=10, help="of the pool server, and of hosts")
    parser.add_argument("--ttl", type=float, default=60, help="seconds that a lease lives unrenewed")
    parser.add_argument("--soak-minutes", type=float, default=0, help="only rollouts that come and go")
    parser.add_argument("--rollouts-a-minute", type=float, default=100)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="swelab-pool-load-"))
    world = World(folder, args.hosts, -(-args.leases // args.hosts) + 8, args.ttl)
    try:
        if args.soak_minutes:
            asyncio.run(soak(world, args.soak_minutes, args.rollouts_a_minute))
        else:
            counts = asyncio.run(load(world, args))
            print(f"execs={counts.done} lost_results={counts.missing} doubled_effects={counts.doubled}")
            print(f"unanswered={counts.wrong}")
        ends = time.monotonic() + 2 * args.ttl + 10
        while world.folders() and time.monotonic() < ends:
            time.sleep(0.5)
        print(f"leaked_sandboxes={world.folders()}")
    finally:
        world.close()
        peaks = [max(each.peak, 0) >> 20 for each in world.hosts]
        print(f"peak_memory: pool={world.pool.peak >> 20} MiB hosts={max(peaks)} MiB")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
