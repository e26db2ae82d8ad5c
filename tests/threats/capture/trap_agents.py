"""Agents whose workspaces are traps, as trials on the cluster."""

from __future__ import annotations

import hashlib
import json
import os

from support.release import Raw
from threats.capture.patch_texts import new_file, new_link
from threats.honest import APP, CHECK_ANSWER, REPO_DEFAULTS, REPO_INPUT, REPO_ROW, WRITE_ANSWER
from threats.kit.arena import Arena
from threats.kit.batch import RUN_AGENT, Batch, Trial, Weakening

CANDIDATE = "{task}/attempts/1/launches/1/candidate/"
STAT = """\
import json, os, stat
seen = {}
for folder, folders, files in os.walk("."):
    for name in [*folders, *files]:
        path = os.path.join(folder, name)
        status = os.lstat(path)
        seen[os.path.relpath(path)] = [stat.filemode(status.st_mode), status.st_nlink]
print(json.dumps(seen))
"""
SHOW: Raw = {"checker": {"command": ["python3", "-c", STAT]}}
"""Prints kind, mode and link count of every entry that crossed, and passes."""

LINKS = """\
import os
for name, target in {
    "passwd": "/etc/passwd", "environ": "/proc/1/environ", "parent": "..", "first": "second",
    "second": "../../etc/passwd", "loop": "pool", "pool": "loop", "inside": "answer.txt",
}.items():
    os.symlink(target, name)
"""
ODD = """\
import os, socket
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
try:
    os.mknod("device", 0o020666, os.makedev(1, 5))
except PermissionError:
    os.mkfifo("device")
"""
SET_ID = """\
import os, shutil
shutil.copy("/bin/sh", "shell")
os.chmod("shell", 0o6755)
os.link("shell", "second")
try:
    os.link("/opt/securebench/public/files/task.json", "stolen")
except OSError:
    pass
"""
SPARSE = """\
with open("huge", "wb") as file:
    file.truncate(1 << 40)
"""
NAMES = (
    "-rf",
    "--help",
    "a\nPASS",
    "$(touch marker)",
    "`touch marker`",
    "a'b\"c",
    "a\x1b[31m",
    " ",
)
NAME_TRAPS = f"""\
for name in {NAMES!r}:
    open(name, "w").write(name)
open(b"\\xff", "w").write("no text")
"""

WORKSPACES = Batch("f6-workspaces", "terminal_task", defaults=APP)
LINKED = WORKSPACES.task("links", agent=WRITE_ANSWER + LINKS, grading=SHOW)
ODD_ENTRIES = WORKSPACES.task("odd", agent=WRITE_ANSWER + ODD, grading=SHOW)
WITH_SET_ID = WORKSPACES.task("set-id", agent=WRITE_ANSWER + SET_ID, grading=SHOW)
HUGE = WORKSPACES.task("huge", agent=WRITE_ANSWER + SPARSE, grading=SHOW)
NAMED = WORKSPACES.task("names", agent=WRITE_ANSWER + NAME_TRAPS, grading=SHOW)

DISPUTED = """\
import os
os.makedirs("a/b/c")
os.symlink("a/b/c", "x")
os.symlink("x/../../..", "l")
"""
DISPUTED_WRONG = WORKSPACES.task("disputed-wrong", agent=DISPUTED, grading=CHECK_ANSWER)
DISPUTED_RIGHT = WORKSPACES.task(
    "disputed-right", agent=WRITE_ANSWER + DISPUTED, grading=CHECK_ANSWER
)
LONG_NAMES_AGENT = """\
import os
name = "n" * 240
folder = os.open(".", os.O_RDONLY)
for _ in range(15):
    os.mkdir(name, dir_fd=folder)
    folder = os.open(name, os.O_RDONLY, dir_fd=folder)
for number in range(95000):
    os.close(os.open("%06d" % number + "f" * 180, os.O_CREAT | os.O_WRONLY, dir_fd=folder))
"""
LONG_NAMES = WORKSPACES.task("long-names", agent=LONG_NAMES_AGENT, grading=CHECK_ANSWER)
FILES_OF_A_BUILD = """\
import os
for number in range(5000):
    os.makedirs("node_modules/package-%d/dist" % number)
    open("node_modules/package-%d/dist/index.js" % number, "w").write("x")
"""
MANY_FILES = WORKSPACES.task(
    "many-files", agent=WRITE_ANSWER + FILES_OF_A_BUILD, grading=CHECK_ANSWER
)

FILE_SPEC = {
    "harness": {
        "type": "command",
        "config": {"command": ["python3", "-c", RUN_AGENT], "artifact_path": "out/answer.txt"},
    }
}
ACCEPTED: Raw = {"accepted_answers": ["4"]}
LINK_ANSWER = 'import os\nos.mkdir("out")\nos.symlink("/etc/passwd", "out/answer.txt")\n'
FIFO_ANSWER = 'import os\nos.mkdir("out")\nos.mkfifo("out/answer.txt")\n'
FILE_ANSWER = 'import os\nos.mkdir("out")\nopen("out/answer.txt", "w").write("4\\n")\n'
FILES = Batch("f6-files", "short_answer", spec=FILE_SPEC)
LINK_AS_ANSWER = FILES.task("link", agent=LINK_ANSWER, grading=ACCEPTED)
FIFO_AS_ANSWER = FILES.task("fifo", agent=FIFO_ANSWER, grading=ACCEPTED)
FILE_AS_ANSWER = FILES.task("file", agent=FILE_ANSWER, grading=ACCEPTED)

_COURIER = "/spec/initContainers/0/command"
_COURIER_IMAGE = "/spec/initContainers/0/image"
PLAIN_COURIER = """\
import hashlib, json, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
spec = json.loads(sys.argv[2])
def hand_in(name, content):
    stream_report = {"bytes": 0, "truncated": False}
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    with open("/work/candidate/" + name, "wb") as file:
        file.write(content)
    for stream in ("stdout", "stderr"):
        open("/work/producer/" + stream, "w").close()
    message = {"v": 1, "problem": None, "message": "", "file": name, "digest": digest}
    message |= {"size_bytes": len(content), "candidate_sha256": digest, "dropped_entries": 0}
    message |= {"stdout": stream_report, "stderr": stream_report, "kernel": os.uname().release}
    with open("/dev/termination-log", "w") as file:
        json.dump(message, file)
signal.sigwait({signal.SIGTERM})
"""
"""The beginning of couriers that keep to no rule but the form of the message."""
PLAIN_OPENER = (
    PLAIN_COURIER
    + """\
path = "/work/workspace/" + spec["seal"]["extraction"]["path"]
hand_in("candidate.txt", open(path, "rb").read())
"""
)
REAL_COURIER = """\
import os, signal, subprocess, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
def seal():
    courier = subprocess.Popen(["/opt/securebench/tools/supervise", "courier", *sys.argv[1:]])
    time.sleep(1)  # a signal that comes before it takes signals would end it
    courier.send_signal(signal.SIGTERM)
    return courier.wait()
"""
"""The beginning of programs that tell the courier when to work."""
SEALS_WHEN_TOLD_BY_A_FILE = (
    REAL_COURIER
    + """\
while not os.path.exists("/work/workspace/state"):
    time.sleep(0.05)
code = seal()
signal.sigwait({signal.SIGTERM})
sys.exit(code)
"""
)


def as_courier(program: str) -> Weakening:
    """Let a program of the test do the courier's work, with the same specification.

    It runs in the operator's image: that of Pods has no Python.
    """
    words = f'["python3", "-I", "-c", {json.dumps(program)}, "--spec"]'
    spec = "object.spec.initContainers[0].command[3]"
    value = f"{words} + [{spec}]"
    image = os.environ.get("SECUREBENCH_OPERATOR_IMAGE", "securebench-operator")
    changes = (
        f'JSONPatch{{op: "replace", path: "{_COURIER}", value: {value}}}',
        f'JSONPatch{{op: "replace", path: "{_COURIER_IMAGE}", value: "{image}"}}',
    )
    return Weakening((f"[{', '.join(changes)}]",))


PLAIN_FILES = Batch(
    "f6-plain-files", "short_answer", spec=FILE_SPEC, weakening=as_courier(PLAIN_OPENER)
)
LINK_FOLLOWED = PLAIN_FILES.task("link", agent=LINK_ANSWER, grading=ACCEPTED)

WORKS_ON = """\
import os, time
open("new", "w").write("early")
os.rename("new", "state")
if os.fork() == 0:
    os.setsid()
    while True:
        open("alive", "w").write(str(time.monotonic()))
time.sleep(6)
open("state", "w").write("late")
"""
WORKING = WORKSPACES.task("works-on", agent=WORKS_ON, grading=SHOW)
EARLY = Batch(
    "f6-early", "terminal_task", defaults=APP, weakening=as_courier(SEALS_WHEN_TOLD_BY_A_FILE)
)
WRITES_LATE = """\
import os, time
open("new", "w").write("early")
os.rename("new", "state")
time.sleep(6)
open("state", "w").write("late")
"""
"""Nothing else changes meanwhile: a tree that changes under the sealing is refused by itself."""
SEALED_EARLY = EARLY.task("works-on", agent=WRITES_LATE, grading=SHOW)

HIDDEN_CHECK = b"sha256sum $0; grep -q 42 answer.txt\n"
HIDDEN_DIGEST = hashlib.sha256(HIDDEN_CHECK).hexdigest()
_PLACE = "securebench/evaluation_inputs/check.sh"
_AWAY = """\
import os
if os.path.exists("securebench"):
    os.rename("securebench", "moved")
"""
_FILE = 'os.makedirs(os.path.dirname(PLACE))\nopen(PLACE, "w").write("exit 0\\n")\n'
_FOLDER = 'os.makedirs(PLACE)\nopen(PLACE + "/x", "w").write("exit 0\\n")\n'
_LINK = """\
os.makedirs("fake/evaluation_inputs")
open("fake/evaluation_inputs/check.sh", "w").write("exit 0\\n")
os.symlink("fake", "securebench")
"""
CHECKED = Batch(
    "f6-planted", "terminal_task", defaults=APP, files={"hidden/check.sh": HIDDEN_CHECK}
)
PLANTING = tuple(
    CHECKED.task(
        name,
        agent=f"{_AWAY}PLACE = {_PLACE!r}\n{deed}",
        grading={"checker": {"command": f"sh {_PLACE}"}, "run_tests": {"path": "check.sh"}},
    )
    for name, deed in {"file": _FILE, "folder": _FOLDER, "link": _LINK}.items()
)
"""Agents that prepare a check of their own where the hidden one will lie."""

HIDDEN_ANSWER = "securebench/evaluation_inputs/expected.txt"
COMPARED = Batch(
    "f6-into-hidden", "terminal_task", defaults=APP, files={"hidden/expected.txt": b"42-hidden\n"}
)
INTO_HIDDEN = tuple(
    COMPARED.task(
        name,
        agent=f'import os\nos.symlink("{target}", "answer.txt")\n',
        grading={"checker": {"command": check}, "run_tests": {"path": "expected.txt"}},
    )
    for name, target, check in (
        ("directly", HIDDEN_ANSWER, f"diff answer.txt {HIDDEN_ANSWER}"),
        ("absolute", f"/app/{HIDDEN_ANSWER}", f"diff answer.txt {HIDDEN_ANSWER}"),
        ("process", f"/proc/self/root/app/{HIDDEN_ANSWER}", f"diff answer.txt {HIDDEN_ANSWER}"),
        ("folder", f"/proc/self/cwd/{HIDDEN_ANSWER}", f"diff answer.txt {HIDDEN_ANSWER}"),
        ("input", "/dev/stdin", f"diff answer.txt - < {HIDDEN_ANSWER}"),
        ("later", "/tmp/x", f"cp {HIDDEN_ANSWER} /tmp/x; diff answer.txt /tmp/x"),
    )
)
"""Agents whose answer is, in the verifier, what the check compares it with."""

TEST_PATCH_FAILED = 64 + 6
_REPO_PATCHES = Batch("f6-patches", "repo_patch", defaults=REPO_DEFAULTS)
PATCHES = tuple(
    _REPO_PATCHES.task(name, candidate=text, given=REPO_INPUT, grading=REPO_ROW["eval"])
    for name, text in {
        "through-link": new_link("pathspec/l", "../../outside") + new_file("pathspec/l/x", "x"),
        "step-out": new_file("../outside/x", "x"),
        "git": new_file(".git/hooks/post-checkout", "x", "100755"),
        "submodule": new_file("lib", "Subproject commit " + 40 * "1", "160000"),
    }.items()
)


KEEPS_TO_NO_RULE = (
    PLAIN_COURIER
    + """\
import io, tarfile
def kept(entry):
    return None if entry.name.split("/")[0] == "securebench" else entry
made = io.BytesIO()
with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
    for name in sorted(os.listdir("/work/workspace")):
        archive.add("/work/workspace/" + name, name, filter=kept)
    if os.path.islink("/work/workspace/l"):
        archive.addfile(tarfile.TarInfo("../x"))
hand_in("workspace.tar", made.getvalue())
"""
)
READS_ALL_AT_ONCE = (
    REAL_COURIER
    + """\
signal.sigwait({signal.SIGTERM})
held = [bytearray(1 << 20) for _ in range(1024)] if os.path.exists("/work/workspace/l") else []
sys.exit(seal())
"""
)
UNSTAGED = Batch(
    "f6-unstaged", "terminal_task", defaults=APP, weakening=as_courier(KEEPS_TO_NO_RULE)
)
UNSEALED = Batch(
    "f6-unsealed", "terminal_task", defaults=APP, weakening=as_courier(READS_ALL_AT_ONCE)
)
SPOILED = tuple(
    (
        batch.task("wrong", agent=DISPUTED, grading=CHECK_ANSWER),
        batch.task("beside", agent=WRITE_ANSWER, grading=CHECK_ANSWER),
        phase,
    )
    for batch, phase in ((UNSTAGED, "verification"), (UNSEALED, "candidate_extraction"))
)
"""Workspaces that a weakened courier cannot take, or that cannot be unpacked after it, and an
honest neighbour in the same run."""


def bundle(arena: Arena, trial: Trial) -> bytes:
    """Return the sealed workspace of a trial, as it lies on the volume."""
    return arena.file(trial, CANDIDATE + "workspace.tar")


def shown(arena: Arena, trial: Trial) -> Raw:
    """Return what the checker saw: mode and link count by path."""
    record = arena.record(trial)
    assert record["outcome"] == "scored", record
    seen: Raw = json.loads(record["verifier_stdout"])
    return seen


def dropped(arena: Arena, trial: Trial) -> int:
    """Return how many entries of a workspace were left out."""
    count: int = arena.record(trial)["producer_metadata"]["candidate_dropped_entries"]
    return count
