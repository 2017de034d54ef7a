"""The ways to leave a bit that `benchmarks.channels` tries, as code: one part writes `bit`, another prints a
number.

Both know the same `once`, a word that no other try has.
"""

from dataclasses import dataclass

_BOTH = """
import ctypes, fcntl, mmap, os, random, resource, socket, sys, threading, time, zlib
libc = ctypes.CDLL(None, use_errno=True)
goes_on = True
said = print
def print(value, **more): said(value if isinstance(value, str) else float(value), **more)
def hold(): time.sleep(60)
def spin():
    end = time.monotonic() + 20
    while time.monotonic() < end: pass
def children(count, act=hold):
    for _ in range(count): os.fork() or (act(), os._exit(0))
def took(act):
    start = time.perf_counter_ns(); act(); return time.perf_counter_ns() - start
def middle(values): return sorted(values)[len(values) // 2]
def called(*words):
    done = libc.syscall(*words)
    if done < 0: raise OSError(ctypes.get_errno(), "refused")
    return done
def big():
    found = [each.path for each in os.scandir("/usr/bin") if each.is_file(follow_symlinks=False)]
    return max(found, key=os.path.getsize)
def pages():
    size = os.path.getsize(big()) // 8192
    return [zlib.crc32(f"{once}{n}".encode()) % size * 8192 for n in range(31)]
shared = os.open("/usr/bin/env", os.O_RDONLY)
def pipe():
    ends = os.pipe(); number = os.fstat(ends[0]).st_ino; os.close(ends[0]); os.close(ends[1]); return number
def set_counter(count, step, room):
    while count() % room // (room // 4) != (3 if bit else 1): step()
"""


@dataclass(frozen=True)
class Probe:
    """A channel. when: "after", "beside" or both; write, read: Python."""

    name: str
    when: str
    write: str
    read: str


def _probe(name: str, when: str, write: str, read: str, both: str = "") -> Probe:
    return Probe(name, when, f"{_BOTH}{both}\n{write}", f"{_BOTH}{both}\n{read}")


def _counter(name: str, count: str, step: str, room: int) -> Probe:
    """A number of the whole machine that only rises: the writer brings it into a part of its range."""
    return _probe(
        f"counter: {name}",
        "after",
        f"set_counter(count, step, {room})",
        f"print(count() % {room} // ({room} // 2))",
        f"def count(): return {count}\ndef step(): {step}",
    )


def _gauge(path: str, value: str, load: str) -> Probe:
    """A number in /proc that goes back to what it was."""
    return _probe(f"gauge: {path}", "beside", f"if bit: {load}", f"t = open({path!r}).read()\nprint({value})")


_FIELD = "int(t.split({!r})[1].split()[0])"
PROBES = [
    _probe(
        "pages in memory, by time",
        "after beside",
        "f = os.open(big(), os.O_RDONLY)\nfor at in pages() if bit else []: os.pread(f, 1, at)",
        "f = os.open(big(), os.O_RDONLY)\nprint(middle([took(lambda: os.pread(f, 1, n)) for n in pages()]))",
    ),
    _probe(
        "names looked up, by time",
        "after beside",
        "for n in range(301) if bit else []: os.access(f'/usr/lib/{once}{n}', 0)",
        "for n in range(300): took(lambda: os.access(f'/usr/lib/-{once}{n}', 0))\n"
        "ways = [f'/usr/lib/{once}{n}' for n in range(301)]\n"
        "a, b = (middle([took(lambda: os.access(way, 0)) for way in ways]) for _ in '12')\nprint(a / b)",
    ),
    _probe(
        "time of last access of a shared file",
        "after beside",
        "if bit: os.pread(shared, 1, 0)\ntry: os.utime('/usr/bin/env')\nexcept OSError: pass",
        "print(os.fstat(shared).st_atime_ns)",
    ),
    _probe(
        "flock of a shared file",
        "beside",
        "if bit: fcntl.flock(shared, fcntl.LOCK_EX)",
        "try: fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB); print(0)\nexcept BlockingIOError: print(1)",
    ),
    _probe(
        "record lock of a shared file",
        "beside",
        "if bit: fcntl.lockf(shared, fcntl.LOCK_SH)",
        "import struct\nask = struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 0, 0)\n"
        "print(struct.unpack('hhqqi', fcntl.fcntl(shared, fcntl.F_GETLK, ask))[0] != fcntl.F_UNLCK)",
    ),
    _probe(
        "lease of a shared file",
        "beside",
        "fcntl.fcntl(shared, fcntl.F_SETLEASE, fcntl.F_RDLCK)",
        "print(0)",
    ),
    _probe(
        "inotify on a shared file",
        "beside",
        "def hold():\n    end = time.monotonic() + 20\n    while time.monotonic() < end:\n"
        "        if bit: os.close(os.open('/usr/bin/env', os.O_RDONLY))\n        time.sleep(0.01)",
        "i = libc.inotify_init1(os.O_NONBLOCK)\nassert libc.inotify_add_watch(i, b'/usr/bin/env', 0x20) > 0\n"
        "time.sleep(0.5)\ntry: print(len(os.read(i, 4096)))\nexcept BlockingIOError: print(0)",
    ),
    _probe(
        "futex on a page of a shared file",
        "beside",
        "m = libc.mmap; m.restype = ctypes.c_void_p\n"
        "at = m(None, ctypes.c_size_t(4096), 1, 1, shared, ctypes.c_long(0))\n"
        "def hold():\n    end = time.monotonic() + 20\n    while time.monotonic() < end:\n"
        "        if bit: libc.syscall(202, ctypes.c_void_p(at), 1, 99, None, None, 0)\n"
        "        time.sleep(0.01)",
        "m = libc.mmap; m.restype = ctypes.c_void_p\n"
        "at = m(None, ctypes.c_size_t(4096), 1, 1, shared, ctypes.c_long(0))\n"
        "class T(ctypes.Structure): _fields_ = [('s', ctypes.c_long), ('n', ctypes.c_long)]\n"
        "value = ctypes.cast(at, ctypes.POINTER(ctypes.c_uint32))[0]\n"
        "half = ctypes.byref(T(0, 500000000))\n"
        "print(libc.syscall(202, ctypes.c_void_p(at), 0, value, half, None, 0) == 0)",
    ),
    _probe(
        "abstract unix socket",
        "beside",
        "s = socket.socket(socket.AF_UNIX)\nif bit: s.bind('\\0' + once)",
        "s = socket.socket(socket.AF_UNIX)\ntry: s.bind('\\0' + once); print(0)\nexcept OSError: print(1)",
    ),
    _probe(
        "port of the loopback",
        "beside",
        "s = socket.socket()\nif bit: s.bind(('127.0.0.1', 5999))",
        "s = socket.socket()\ntry: s.bind(('127.0.0.1', 5999)); print(0)\nexcept OSError: print(1)",
    ),
    _probe("System V memory", "after", "called(29, 77, 4096, 0o1666)", "print(0)"),
    _probe("System V queue", "after", "called(68, 77, 0o1666)", "print(0)"),
    _probe("System V semaphore", "after", "called(64, 77, 1, 0o1666)", "print(0)"),
    _probe(
        "POSIX queue",
        "after beside",
        "if bit: called(240, b'probe', 0o102, 0o666, None)",
        "print(libc.syscall(240, b'probe', 0, 0, None) >= 0)",
    ),
    _probe("key in a keyring", "after", "called(248, b'user', b'probe', b'1', 1, -4)", "print(0)"),
    _probe(
        "perf events",
        "beside",
        "called(298, ctypes.byref(ctypes.create_string_buffer(128)), 0, -1, -1, 0)",
        "print(0)",
    ),
    _probe("userfaultfd", "beside", "called(323, 1)", "print(0)"),
    _probe("memory of no process (memfd)", "beside", "called(319, b'probe', 0)", "print(0)"),
    _probe(
        "file in /dev/shm, /tmp or home",
        "after beside",
        "for top in ('/dev/shm', '/tmp', os.path.expanduser('~')) if bit else []: open(f'{top}/probe', 'w')",
        "print(sum(os.path.exists(f'{top}/probe') for top in ('/dev/shm', '/tmp', os.path.expanduser('~'))))",
    ),
    _probe(
        "number of the next process",
        "after beside",
        "for _ in range(200 * bit): os.waitpid(os.fork() or os._exit(0), 0)",
        "print(os.fork() or os._exit(0))",
    ),
    _probe(
        "inode number of the next file",
        "after beside",
        "for n in range(500 * bit): open(f'/tmp/{n}', 'w').close()",
        "open('/tmp/new', 'w').close()\nprint(os.stat('/tmp/new').st_ino)",
    ),
    _probe(
        "device number of /tmp",
        "after",
        "if bit: open('/tmp/new', 'w')",
        "print(os.stat('/tmp').st_dev)",
    ),
    _probe(
        "processes of the same user",
        "beside",
        "children(100 * bit)",
        "resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))\n"
        "try: os.waitpid(os.fork() or os._exit(0), 0); print(0)\nexcept OSError: print(1)",
    ),
    _probe(
        "load of the processors",
        "beside",
        "children(8 * bit, spin)",
        "start = time.monotonic()\nfor _ in range(3000000): pass\n"
        "print((time.monotonic() - start) / time.process_time())",
    ),
    _counter("inode numbers of pipes", "pipe()", "pipe()", 1 << 20),
    _counter(
        "forks, in /proc/stat",
        _FIELD.format("processes").replace("t.", "open('/proc/stat').read()."),
        "os.waitpid(os.fork() or os._exit(0), 0)",
        1 << 10,
    ),
    _gauge("/proc/loadavg", "int(t.split()[3].split('/')[1])", "children(100)"),
    _gauge(
        "/proc/sys/fs/file-nr",
        "int(t.split()[0])",
        "kept = [os.dup(shared) and os.open('/usr/bin/env', 0) for _ in range(500)]",
    ),
    _gauge(
        "/proc/sys/fs/inode-nr", "int(t.split()[0])", "[open(f'/tmp/{n}', 'w').close() for n in range(20000)]"
    ),
    _gauge(
        "/proc/sys/fs/dentry-state",
        "int(t.split()[0])",
        "[os.access(f'/usr/lib/{once}{n}', 0) for n in range(50000)]",
    ),
    _gauge("/proc/meminfo", _FIELD.format("MemFree:"), "kept = b'x' * (1 << 30)"),
    _gauge("/proc/vmstat", _FIELD.format("nr_anon_pages"), "kept = b'x' * (1 << 30)"),
    _gauge("/proc/net/sockstat", _FIELD.format("used"), "kept = [socket.socket() for _ in range(200)]"),
    _gauge("/proc/pressure/cpu", "float(t.split('avg10=')[1].split()[0])", "children(8, spin)"),
    _gauge("/proc/locks", "t.count('\\n')", "fcntl.flock(shared, fcntl.LOCK_SH)"),
    _gauge(
        "/proc/diskstats",
        "sum(int(line.split()[5]) for line in t.splitlines())",
        "f = os.open(big(), 0); [os.pread(f, 1, at) for at in pages()]",
    ),
]
