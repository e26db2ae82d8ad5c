"""Eigenpairs of matrices that the agent has not seen."""

import json
import math
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

APP = Path(os.environ.get("SECUREBENCH_WORKSPACE", "/app"))

MEMORY = 500 * 1024 * 1024


def eigenpair(tmp_path, size, entries):
    source = tmp_path / "matrix.txt"
    lines = [f"{size}\n", *(f"{r} {c} {v!r}\n" for r, c, v in entries)]
    source.write_text("".join(lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(APP / "fast.py"), str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return result["value"], result["vector"]


def check(size, entries, value, vector):
    assert len(vector) == size
    assert math.isclose(math.fsum(x * x for x in vector), 1.0, rel_tol=1e-9)
    product = [0.0] * size
    for r, c, v in entries:
        product[r] += v * vector[c]
        if r != c:
            product[c] += v * vector[r]
    rest = math.sqrt(math.fsum((p - value * x) ** 2 for p, x in zip(product, vector)))
    assert rest <= 1e-6 * abs(value)


def test_two_by_two(tmp_path):
    entries = [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 2.0)]
    value, vector = eigenpair(tmp_path, 2, entries)
    assert math.isclose(value, 3.0, rel_tol=1e-9)
    check(2, entries, value, vector)


def test_negative_and_listed_twice(tmp_path):
    entries = [(0, 0, -3.0), (0, 0, -4.0), (1, 1, 5.0), (0, 1, 1.0), (2, 2, 1.0)]
    value, vector = eigenpair(tmp_path, 3, entries)
    assert value < -7
    check(3, entries, value, vector)


def test_large(tmp_path):
    chance, size = random.Random("large"), 20_000
    entries = [
        (*sorted((chance.randrange(size), chance.randrange(size))), chance.uniform(-1, 1))
        for _ in range(80_000 - 1)
    ]
    entries.append((777, 777, 40.0))
    value, vector = eigenpair(tmp_path, size, entries)
    assert value > 39
    check(size, entries, value, vector)
