"""Jumps in films that the agent has not seen."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

APP = Path(os.environ.get("SECUREBENCH_WORKSPACE", "/app"))


def film(folder, seed):
    """Write a film and return takeoff and landing."""
    chance = random.Random(f"film {seed}")
    width, height = chance.randint(60, 80), chance.randint(40, 60)
    size, count = chance.randint(3, 9), chance.randint(20, 60)
    ground = height - size - chance.randint(2, 6)
    speed = (width + 2 * size) / count
    takeoff = chance.randint(count // 3, count // 2)
    length = chance.randint(3, max(4, count // 6))
    top = chance.randint(2, 14)
    folder.mkdir(exist_ok=True)
    for number in range(count):
        step = number - takeoff
        rise = max(2, round(top * (1 - abs(2 * step / length - 1)))) if 0 <= step < length else 0
        left = round(number * speed) - size
        paint(folder / f"{number:04}.pgm", chance, (width, height), (left, ground - rise, size))
    return takeoff, takeoff + length


def paint(path, chance, extent, square):
    width, height = extent
    left, top, size = square
    grey = [[chance.randint(10, 50) for _ in range(width)] for _ in range(height)]
    inside = [(r, c) for r in range(top, top + size) for c in range(left, left + size)]
    taken = {(r + i, c + j) for r, c in inside for i in (-1, 0, 1) for j in (-1, 0, 1)}
    for r, c in inside:
        if 0 <= r < height and 0 <= c < width:
            grey[r][c] = 200
    for _ in range(chance.randint(0, 40)):
        r, c = chance.randrange(height), chance.randrange(width)
        if (r, c) not in taken:
            grey[r][c] = chance.randint(180, 255)
            taken |= {(r + i, c + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    rows = "\n".join(" ".join(map(str, row)) for row in grey)
    path.write_text(f"P2\n# a film\n{width} {height}\n255\n{rows}\n", encoding="ascii")


def found(folder):
    done = subprocess.run(
        [sys.executable, str(APP / "jump.py"), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return result["takeoff"], result["landing"]


def test_example():
    assert found(APP / "frames") == (5, 9)


@pytest.mark.parametrize("seed", range(8))
def test_film(tmp_path, seed):
    want = film(tmp_path / "frames", seed)
    assert found(tmp_path / "frames") == want
