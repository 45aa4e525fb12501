"""System calls that no process of a sandbox may make, as a seccomp filter for bubblewrap."""

from __future__ import annotations

import errno
import platform
import struct

NEW_NAMESPACES = 0x7E020080
"""CLONE_NEW* of every kind, CLONE_NEWTIME included."""
SOCKETS = (1, 2, 10, 16)
"""Families of sockets that may be made: local ones, IPv4, IPv6 and netlink, which the network namespace
isolates. Others it does not, as those between a virtual machine and its host."""
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
"""Requests that type into another process's terminal."""

_SAME = {
    "pidfd_getfd": 438,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "quotactl_fd": 443,
}
_NAMES = (
    "ptrace process_vm_readv process_vm_writev kcmp keyctl add_key request_key bpf perf_event_open "
    "userfaultfd kexec_load kexec_file_load init_module finit_module delete_module mount umount2 pivot_root "
    "setns unshare swapon swapoff reboot open_by_handle_at name_to_handle_at quotactl acct settimeofday "
    "clock_settime clock_adjtime adjtimex syslog vhangup fanotify_init"
)
_NUMBERS = {
    "x86_64": (
        0xC000003E,
        {"clone": 56, "ioctl": 16, "clone3": 435, "socket": 41},
        "101 310 311 312 250 248 249 321 298 323 246 320 175 313 176 165 166 155 308 272 167 168 169 304 303 "
        "179 163 164 227 305 159 103 153 300",
    ),
    "aarch64": (
        0xC00000B7,
        {"clone": 220, "ioctl": 29, "clone3": 435, "socket": 198},
        "117 270 271 272 219 217 218 280 241 282 104 294 105 273 106 40 39 41 268 97 224 225 142 265 264 "
        "60 89 170 112 266 171 116 58 262",
    ),
}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_ARGUMENT = 16
"""Offset of the first argument in `struct seccomp_data`; the low half of each comes first."""


def forbidden(machine: str = "") -> dict[str, int]:
    """Numbers of the calls that always fail, by name; none for a machine that is not known.

    machine  as `platform.machine()` says it, which is the default
    """
    known = _NUMBERS.get(machine or platform.machine())
    if known is None:
        return {}
    return dict(zip(_NAMES.split(), map(int, known[2].split()), strict=True)) | _SAME


def call_filter(machine: str = "") -> bytes:
    """The filter as bubblewrap reads it (an array of `struct sock_filter`); empty for an unknown machine.

    Refused are the calls of `forbidden`, clone with a new namespace, clone3 (a filter cannot read its flags;
    libraries use clone then), sockets of other families than `SOCKETS`, and ioctls that type into a
    terminal. Calls of another architecture end the process.
    """
    machine = machine or platform.machine()
    if machine not in _NUMBERS:
        return b""
    architecture, special, _ = _NUMBERS[machine]
    refuse, missing = ((_RETURN, 0, 0, _REFUSE | code) for code in (errno.EPERM, errno.ENOSYS))
    code = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, 0x40000000),  # x32 calls of x86_64 have other numbers
        refuse,
        (_EQUAL, 0, 1, special["clone3"]),
        missing,
    ]
    for number in sorted(forbidden(machine).values()):
        code += [(_EQUAL, 0, 1, number), refuse]
    last = 9 + len(SOCKETS)  # how far the last line, which allows the call, is from the third
    code += [
        (_EQUAL, 0, 3, special["clone"]),
        (_LOAD, 0, 0, _ARGUMENT),
        (_ANY_BIT, 0, last, NEW_NAMESPACES),
        refuse,
        (_EQUAL, 0, 4, special["ioctl"]),
        (_LOAD, 0, 0, _ARGUMENT + 8),
        (_EQUAL, 1, 0, TIOCSTI),
        (_EQUAL, 0, last - 5, TIOCLINUX),
        refuse,
        (_EQUAL, 0, last - 7, special["socket"]),
        (_LOAD, 0, 0, _ARGUMENT),
        *((_EQUAL, len(SOCKETS) - i, 0, family) for i, family in enumerate(SOCKETS)),
        (_RETURN, 0, 0, _REFUSE | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in code)
