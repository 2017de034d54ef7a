"""A seccomp filter (classic BPF) for untrusted code.

Namespaces hide the host. The filter forbids calls that namespaces allow. It forbids new namespaces and
mounts, because they expose more of the kernel, and a tmpfs has no limit. It forbids kernel keyrings and
AF_VSOCK, because they belong to no namespace. It forbids memfd and System V segments and queues, because our
memory limits do not count them. It forbids calls that report or change which pages of a shared file are in
memory. Sandboxes could use such pages to send signals to each other. The numbers of the calls are from Linux
(arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h).
"""

import errno
import platform
import struct
from typing import Any

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_ADDRESS_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_MOST_FAMILIES = 64

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_RWF_NOWAIT = 0x8
_MADV_COLD, _MADV_PAGEOUT = 20, 21
_MADVISE = {"x86_64": 28, "aarch64": 233}
_PREADV2 = {"x86_64": 327, "aarch64": 286}
_SOCKET = {"x86_64": 41, "aarch64": 198}
# name: (x86_64, aarch64)
_REFUSED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "cachestat": (451, 451),
    "chroot": (161, 51),
    "delete_module": (176, 106),
    "fadvise64": (221, 223),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mincore": (27, 232),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "msgget": (68, 186),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "readahead": (187, 213),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semget": (64, 190),
    "setns": (308, 268),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sync_file_range": (277, 84),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
# These calls fail with ENOSYS, so that C libraries use older calls. clone3 is one of them, because a filter
# cannot read its flags, which are in memory.
_ABSENT = {
    "clone3": (435, 435),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
}


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refuse(number: int, error: int) -> bytes:
    return _step(_JUMP_EQ, number, 0, 1) + _step(_RETURN, _ERRNO | error)


def _argument_rule(number: int, place: int, jump: int, values: tuple[int, ...], error: int) -> bytes:
    """Refuses a system call if its argument number `place` matches one of the values.

    jump: _JUMP_EQ if the argument must equal a value, _JUMP_SET if it must have a bit of a value.
    """
    last = len(values) - 1
    steps = [_step(_JUMP_EQ, number, 0, last + 4), _step(_LOAD, _ARGUMENTS_AT + 8 * place)]
    steps += [_step(jump, value, last - i, int(i == last)) for i, value in enumerate(values)]
    return b"".join(steps) + _step(_RETURN, _ERRNO | error) + _step(_RETURN, _ALLOW)


def _socket_rule(number: int) -> bytes:
    families = len(_ADDRESS_FAMILIES)
    steps = [_step(_JUMP_EQ, number, 0, families + 3), _step(_LOAD, _ARGUMENTS_AT)]
    steps += [_step(_JUMP_EQ, family, families - i, 0) for i, family in enumerate(_ADDRESS_FAMILIES)]
    return b"".join(steps) + _step(_RETURN, _ERRNO | errno.EAFNOSUPPORT) + _step(_RETURN, _ALLOW)


def filter_program(machine: str | None = None) -> bytes:
    """Returns the filter for bwrap's --seccomp (array of struct sock_filter). Unknown machines get b""."""
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        return b""
    column = 0 if machine == "x86_64" else 1
    steps = [
        _step(_LOAD, _ARCH_AT),
        _step(_JUMP_EQ, _AUDIT_ARCH[machine], 1, 0),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
        _step(_LOAD, _NUMBER_AT),
    ]
    if machine == "x86_64":
        steps += [_step(_JUMP_GE, _X32_BIT, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    steps += [_refuse(numbers[column], errno.EPERM) for numbers in _REFUSED.values()]
    steps += [_refuse(numbers[column], errno.ENOSYS) for numbers in _ABSENT.values()]
    advice = (_MADV_COLD, _MADV_PAGEOUT)
    steps += [
        _argument_rule(_CLONE[machine], 0, _JUMP_SET, (_NEW_NAMESPACES,), errno.EPERM),
        _argument_rule(_MADVISE[machine], 2, _JUMP_EQ, advice, errno.EPERM),
        _argument_rule(_PREADV2[machine], 5, _JUMP_SET, (_RWF_NOWAIT,), errno.EOPNOTSUPP),
        _socket_rule(_SOCKET[machine]),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


def engine_profile() -> dict[str, Any]:
    """Returns the same rules as a profile for container engines (OCI runtime specification)."""

    def rule(names: list[str], error: int, **more: object) -> dict[str, Any]:
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error, **more}

    def argument(value: int, operation: str, index: int = 0, **more: int) -> list[dict[str, Any]]:
        return [{"index": index, "value": value, "op": operation, **more}]

    bits = [1 << bit for bit in range(32) if _NEW_NAMESPACES >> bit & 1]
    spaces = [
        rule(["clone"], errno.EPERM, args=argument(bit, "SCMP_CMP_MASKED_EQ", valueTwo=bit)) for bit in bits
    ]
    # A rule applies only if all its conditions hold, so each forbidden family needs a rule.
    gaps = [family for family in range(_MOST_FAMILIES) if family not in _ADDRESS_FAMILIES]
    sockets = [rule(["socket"], errno.EAFNOSUPPORT, args=argument(family, "SCMP_CMP_EQ")) for family in gaps]
    sockets.append(rule(["socket"], errno.EAFNOSUPPORT, args=argument(_MOST_FAMILIES, "SCMP_CMP_GE")))
    advice = (_MADV_COLD, _MADV_PAGEOUT)
    pages = [rule(["madvise"], errno.EPERM, args=argument(each, "SCMP_CMP_EQ", 2)) for each in advice]
    bit = argument(_RWF_NOWAIT, "SCMP_CMP_MASKED_EQ", 5, valueTwo=_RWF_NOWAIT)
    pages.append(rule(["preadv2"], errno.EOPNOTSUPP, args=bit))
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X32", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            rule(sorted(_REFUSED), errno.EPERM),
            rule(sorted(_ABSENT), errno.ENOSYS),
            *spaces,
            *sockets,
            *pages,
        ],
    }
