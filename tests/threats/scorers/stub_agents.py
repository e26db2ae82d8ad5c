"""Agents that leave a file of the right name instead of the work, by pack and task."""

from __future__ import annotations

import json
from collections.abc import Mapping

from threats.honest import BENCHMARKS

PAD = "# " + "x" * 1000 + "\n"


def writes(path: str, content: str) -> str:
    """Return an agent that leaves one file."""
    return f'open({path!r}, "w").write({content!r})\n'


_ZERO = writes("answer.txt", "0\n")
_AGENTBENCH = ("46", "47", "52", "56", "58", "63", "65", "69", "77", "86", "90", "95")
_PICTURE = """\
words = open("image.ppm").read().split()
size = words[1:3]
open("image.c", "w").write('#include <stdio.h>\\nint main(void) { printf("P3 %s %s 255\\\\n"); '
    'for (int i = 0; i < %s * %s * 3; i++) printf("128 "); }\\n' % (*size, *size))
"""
_PRIMERS = "".join(
    f">{part}_{way}\n{'ACGT' * 8}\n"
    for part in ("vector", "insert", "tag")
    for way in ("fwd", "rev")
)
STUBS: Mapping[str, Mapping[str, str]] = {
    "terminal-task-smoke": {
        "csv-totals": writes("totals.json", json.dumps({"ada": 1.0, "bob": 2.0, "eve": 3.0})),
        "settings-port": writes("settings.ini", "[server]\nport = 9090\n"),
        "urgent-minutes": _ZERO,
        "peak-logins": _ZERO,
        "starter-slug": writes("slug.py", f"{PAD}def slug(title): return title\n"),
    },
    "agentbench-os-mini": {
        f"agentbench-os-{number}": writes("answer.txt", "0 0 0\n") if number == "46" else _ZERO
        for number in _AGENTBENCH
    },
    "terminal-bench-first10": {
        "assembly-primers": writes("primers.fasta", _PRIMERS),
        "csv-by-sed": writes("rewrite.sed", "s/,/|/g\n"),
        "hidden-layer": writes(
            "steal.py", f'{PAD}print("! [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]")\n'
        ),
        "image-by-c": _PICTURE,
        "jump-in-frames": writes("jump.py", f'{PAD}print(\'{{"takeoff": 9, "landing": 12}}\')\n'),
        "repair-xmltodict": writes(
            "xmltodict.py", f"{PAD}def parse(*_, **__): return {{'root': None}}\n"
        ),
        "request-id-regex": writes("pattern.txt", "req-[0-9a-f]{8}\n"),
        "sparse-eigenvector": writes(
            "fast.py",
            f"{PAD}import json, sys\nsize = int(open(sys.argv[1]).readline())\n"
            'print(json.dumps({"value": 1.0, "vector": [1.0] + [0.0] * (size - 1)}))\n',
        ),
        "stable-kmeans": writes(
            "kmeans.py", f'{PAD}print(\'{{"centers": [[0, 0]], "inertia": 0}}\')\n'
        ),
        "winning-moves": writes("moves.py", PAD),
    },
}
KNOWN: Mapping[str, Mapping[str, str]] = {
    "terminal-task-smoke": {
        "urgent-minutes": writes("answer.txt", "50\n"),
    },
    "terminal-bench-first10": {
        "request-id-regex": writes("pattern.txt", "req-1111aaaa|req-5555eeee\n"),
        "winning-moves": writes(
            "moves.py", 'import sys\nif sys.argv[1] == "X": print("7 3\\n7 8")\n'
        ),
    },
}
"""Agents that know the example of the instructions, and give its answer to everything."""


def oracle(pack: str, task: str) -> str:
    """Return an agent that does what the pack's own solution does."""
    lines = (BENCHMARKS / pack / "oracle" / "answers.jsonl").read_text(encoding="utf-8")
    command = {row["id"]: row["command"] for row in map(json.loads, lines.splitlines())}[task]
    return f'import subprocess\nsubprocess.run(["sh", "-lc", {command!r}], check=True)\n'
