"""Clusters of point sets that the agent has not seen."""

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

APP = Path(os.environ.get("SECUREBENCH_WORKSPACE", "/app"))


def clustered(tmp_path, points, clusters, workers):
    source = tmp_path / "points.csv"
    source.write_text("".join(f"{x!r},{y!r}\n" for x, y in points), encoding="utf-8")
    words = [sys.executable, str(APP / "kmeans.py"), str(source), str(clusters), str(workers)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout


def blobs(seed, sizes, offset, width=1.0):
    chance = random.Random(seed)
    points, best = [], 0.0
    for index, size in enumerate(sizes):
        cx, cy = offset + 40.0 * (index % 3), offset - 55.0 * (index // 3)
        blob = [(chance.gauss(cx, width), chance.gauss(cy, width)) for _ in range(size)]
        mx = math.fsum(x - cx for x, _ in blob) / size + cx
        my = math.fsum(y - cy for _, y in blob) / size + cy
        best += math.fsum((x - mx) ** 2 + (y - my) ** 2 for x, y in blob)
        points += blob
    chance.shuffle(points)
    return points, best


def check(text, points, best, clusters):
    result = json.loads(text)
    centers = [tuple(center) for center in result["centers"]]
    assert len(centers) == clusters
    assert centers == sorted(centers)
    inertia = math.fsum(min((x - a) ** 2 + (y - b) ** 2 for a, b in centers) for x, y in points)
    assert inertia <= best * 1.02
    assert math.isclose(result["inertia"], inertia, rel_tol=1e-6)


def test_small(tmp_path):
    points, best = blobs("small", (30, 60, 90), 0.0)
    check(clustered(tmp_path, points, 3, 2), points, best, 3)


def test_far_from_the_origin(tmp_path):
    points, best = blobs("far", (200, 50, 400, 100), 1e8)
    check(clustered(tmp_path, points, 4, 3), points, best, 4)


def test_workers_make_no_difference(tmp_path):
    points, _ = blobs("same", (101, 57, 333), 1e6, width=4.0)
    texts = {clustered(tmp_path, points, 3, workers) for workers in (1, 4)}
    assert len(texts) == 1


def test_many_points(tmp_path):
    points, best = blobs("many", (8000, 500, 6000, 1500, 4000), 1000.0)
    check(clustered(tmp_path, points, 5, 2), points, best, 5)
