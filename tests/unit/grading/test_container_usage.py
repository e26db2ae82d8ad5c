from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from securebench.grading.verify_text import (
    CGROUP,
    CPU_STATS,
    MEMORY_PEAKS,
    measure_usage,
    with_usage,
)
from support.release import ROOT

BEFORE = "usage_usec 10\nnr_periods 100\nnr_throttled 7\nthrottled_usec 9\n"
AFTER = "usage_usec 90\nnr_periods 140\nnr_throttled 12\nthrottled_usec 9\n"
TOOK = {"memory_peak_bytes": 1048576, "cpu_periods": 40, "cpu_throttled": 5}

CASES = {
    "cgroup v2": ("memory.peak", "cpu.stat", "1048576\n", AFTER, TOOK),
    "cgroup v1": ("memory/memory.max_usage_in_bytes", "cpu/cpu.stat", "1048576\n", AFTER, TOOK),
    "never throttled": ("memory.peak", "cpu.stat", "5\n", BEFORE, {"memory_peak_bytes": 5}),
    "no CPU limit": ("memory.peak", "cpu.stat", "5\n", "usage_usec 1\n", {"memory_peak_bytes": 5}),
    "no numbers": ("memory.peak", "cpu.stat", "max\n", "nr_periods many\n", {}),
    "no text": ("memory.peak", "cpu.stat", "\u20ac\n", "\u20ac\n", {}),
    "other files": ("other", "another", "5\n", AFTER, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_usage_is_read_from_the_kernels_files(name: str, tmp_path: Path) -> None:
    peak, stat, peak_after, stat_after, want = CASES[name]
    for file in (tmp_path / peak, tmp_path / stat):
        file.parent.mkdir(exist_ok=True)
    (tmp_path / stat).write_text(BEFORE)
    used = measure_usage(tmp_path)
    (tmp_path / peak).write_text(peak_after)
    (tmp_path / stat).write_text(stat_after)
    assert used() == want


def test_a_message_has_the_usage_where_it_has_room() -> None:
    assert json.loads(with_usage(b'{"v":1}', TOOK)) == {"v": 1} | TOOK
    assert with_usage(b'{"v":1}', {}) == b'{"v":1}'
    full = json.dumps({"v": 1, "metadata": "x" * 4050}).encode()
    assert with_usage(full, TOOK) == full


def test_the_files_are_those_that_supervise_reads():
    source = (ROOT / "images/supervise/internal/cgroup/usage.go").read_text(encoding="utf-8")
    ours = [f"{CGROUP}/{name}" for name in (*MEMORY_PEAKS, *CPU_STATS)]
    assert re.findall(r'"(/sys/fs/cgroup/[^"]+)"', source) == ours
