"""Peak memory of the operator while it grades hostile patches and streams beside honest tasks.

Every shape of ``support.memory_shapes`` is handed in as large as it may be, again and again, with
a stream on stderr; honest repairs stand between them and a second run of honest answers goes on
beside them. Prints the verdicts and the peak. Needs an installed chart and the namespace's own
operator to be idle.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from bench.product import TEXT, benchmark_run, kubectl, pack  # noqa: E402
from support.memory_shapes import PATCHES, STREAMS  # noqa: E402
from threats.honest import GOLD_PATCH, REPO_DEFAULTS, REPO_INPUT, REPO_ROW  # noqa: E402
from threats.kit.batch import Batch, Trial  # noqa: E402

PATCH_BYTES = 10_400_000
"""Below the limit of 10 MiB, with what a shape adds around it."""
STREAM_BYTES = 1 << 20
PROGRAM = """
import sys
sys.stderr.buffer.write(STREAMS[{stream!r}]({stream_bytes}))
sys.stdout.buffer.write(PATCHES[{shape!r}]({patch_bytes}))
"""
EVERY = 10
"""One honest repair for so many hostile patches."""
MIB = 1 << 20
CGROUP = "/sys/fs/cgroup"
COUNTERS = (f"{CGROUP}/memory.peak", f"{CGROUP}/memory/memory.max_usage_in_bytes")
"""Peak of the container with its page cache, in cgroups of version 2 and 1."""


class Peak(NamedTuple):
    """Memory of the operator since its container was started, in MiB.

    Attributes:
        resident: Of its own process.
        reader: Of the largest other one: the process that reads what agents left.
        container: With the page cache.
    """

    resident: float
    reader: float
    container: float
    restarts: int


def hostile(batch: Batch, times: int) -> Iterator[Trial]:
    """Yield tasks whose agents hand in hostile patches, with honest repairs between them."""
    shapes = (TESTS / "support" / "memory_shapes.py").read_text(encoding="utf-8")
    streams = cycle(STREAMS)
    number = 0
    for turn in range(times):
        for shape in PATCHES:
            if number % EVERY == 0:
                yield repair(batch, f"honest-{number}")
            program = PROGRAM.format(
                stream=next(streams),
                stream_bytes=STREAM_BYTES,
                shape=shape,
                patch_bytes=PATCH_BYTES,
            )
            name = f"{shape.replace(' ', '-').lower()}-{turn}"
            grading = REPO_ROW["eval"]
            yield batch.task(name, agent=shapes + program, given=REPO_INPUT, grading=grading)
            number += 1
    yield repair(batch, "honest-last")


def repair(batch: Batch, name: str) -> Trial:
    """Return a task whose agent repairs the repository."""
    return batch.task(name, candidate=GOLD_PATCH, given=REPO_INPUT, grading=REPO_ROW["eval"])


def push(namespace: str, pod: str, folder: str, files: Mapping[str, bytes]) -> None:
    """Put a pack on the volume."""
    place = f"/var/lib/securebench/packs/{folder}"
    kubectl("exec", "-n", namespace, pod, "--", "mkdir", "-p", place)
    for path, data in files.items():
        words = ("sh", "-c", f"cat > {place}/{path}")
        kubectl("exec", "-i", "-n", namespace, pod, "--", *words, stdin=data.decode())


def peak(namespace: str, pod: str) -> Peak:
    """Read the operator's peak from its own container."""
    shell = ("sh", "-c", "grep -hs VmHWM /proc/[0-9]*/status || true")
    lines = kubectl("exec", "-n", namespace, pod, "--", *shell).splitlines()
    operator, *others = (int(line.split()[1]) / 1024 for line in lines)
    words = ("sh", "-c", f"cat {' '.join(COUNTERS)} 2>/dev/null || true")
    container = kubectl("exec", "-n", namespace, pod, "--", *words)
    seen = json.loads(kubectl("get", "-n", namespace, "pod", pod, "-o", "json"))
    restarts = sum(each["restartCount"] for each in seen["status"]["containerStatuses"])
    return Peak(operator, max(others), int(container) / MIB, restarts)


def verdicts(namespace: str, pod: str, name: str) -> Sequence[Mapping[str, Any]]:
    """Return the records of a run."""
    uid = kubectl("get", "-n", namespace, "brun", name, "-o", "jsonpath={.metadata.uid}")
    path = f"/var/lib/securebench/runs/{uid}/candidates.jsonl"
    text = kubectl("exec", "-n", namespace, pod, "--", "cat", path)
    return [json.loads(line) for line in text.splitlines()]


def measure(namespace: str, pod: str, times: int, parallelism: int) -> None:
    """Run both runs to their end and print what came of them."""
    batch = Batch("hostile", "repo_patch", defaults=REPO_DEFAULTS)
    trials = list(hostile(batch, times))
    name, beside = (f"{word}-{uuid.uuid4().hex[:6]}" for word in ("hostile", "beside"))
    push(namespace, pod, name, batch.pack([each.row for each in trials]))
    first = peak(namespace, pod)
    began = time.monotonic()
    spec = {
        **batch.run_spec(),
        "pack": {"volume": {"path": name}},
        "parallelism": parallelism,
    }
    honest = benchmark_run(beside, TEXT, 2)
    for body in (
        pack(beside, TEXT, len(trials) // 2),
        honest,
        {**honest, "metadata": {"name": name}, "spec": spec},
    ):
        kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(body))
    for each in (name, beside):
        kubectl("wait", "-n", namespace, "--for=condition=Complete", f"brun/{each}", "--timeout=3h")
    report(namespace, pod, (name, beside), first, time.monotonic() - began)


def report(namespace: str, pod: str, names: tuple[str, str], first: Peak, seconds: float) -> None:
    """Print verdicts by kind of task, and the peak before and after."""
    hostile_run, beside = (verdicts(namespace, pod, name) for name in names)
    counts = Counter(
        (
            "honest repair" if record["task_id"].startswith("honest-") else "hostile patch",
            record["outcome"],
            record.get("failure_reason") or ("passed" if record["passed"] else "failed"),
        )
        for record in hostile_run
    )
    counts |= Counter(
        ("honest answer", record["outcome"], "passed" if record["passed"] else "failed")
        for record in beside
    )
    for key, number in sorted(counts.items()):
        print(f"{number:6} {', '.join(key)}")
    last = peak(namespace, pod)
    print(f"{seconds:.0f} s; operator restarts {last.restarts - first.restarts}")
    for word, value in (("before", first), ("after", last)):
        print(
            f"peak {word}: operator {value.resident:.0f} MiB, "
            f"reading process {value.reader:.0f} MiB, "
            f"container {value.container:.0f} MiB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    namespace = os.environ.get("SECUREBENCH_NAMESPACE", "securebench")
    parser.add_argument("--namespace", default=namespace)
    parser.add_argument("--pod", default="securebench-0")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--parallelism", type=int, default=8)
    chosen = parser.parse_args()
    measure(chosen.namespace, chosen.pod, chosen.times, chosen.parallelism)


if __name__ == "__main__":
    main()
