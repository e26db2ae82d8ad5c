#!/bin/bash
cat > kmeans.py <<'EOF'
import json
import math
import multiprocessing
import random
import sys

CHUNK = 1000


def nearest(point, centers):
    x, y = point
    return min(range(len(centers)), key=lambda i: (x - centers[i][0]) ** 2 + (y - centers[i][1]) ** 2)


def assign(job):
    points, centers = job
    sums = [[0, [], []] for _ in centers]
    inertia = []
    for x, y in points:
        index = nearest((x, y), centers)
        a, b = centers[index]
        sums[index][0] += 1
        sums[index][1].append(x - a)
        sums[index][2].append(y - b)
        inertia.append((x - a) ** 2 + (y - b) ** 2)
    return [(n, math.fsum(dx), math.fsum(dy)) for n, dx, dy in sums], math.fsum(inertia)


def step(pool, chunks, centers):
    parts = pool.map(assign, [(chunk, centers) for chunk in chunks])
    moved = []
    for index, (x, y) in enumerate(centers):
        number = sum(part[0][index][0] for part in parts) or 1
        moved.append(
            (
                x + math.fsum(part[0][index][1] for part in parts) / number,
                y + math.fsum(part[0][index][2] for part in parts) / number,
            )
        )
    return moved, math.fsum(part[1] for part in parts)


def start(points, clusters, chance):
    sample = points if len(points) <= 2000 else chance.sample(points, 2000)
    centers = [chance.choice(sample)]
    while len(centers) < clusters:
        weights = [min((x - a) ** 2 + (y - b) ** 2 for a, b in centers) for x, y in sample]
        centers.append(chance.choices(sample, weights)[0] if any(weights) else sample[0])
    return centers


def main():
    path, clusters, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with open(path, encoding="utf-8") as file:
        points = [tuple(map(float, line.split(","))) for line in file if line.strip()]
    chunks = [points[i : i + CHUNK] for i in range(0, len(points), CHUNK)]
    best = None
    with multiprocessing.Pool(workers) as pool:
        for seed in range(4):
            centers, last = start(points, clusters, random.Random(seed)), math.inf
            for _ in range(30):
                moved, inertia = step(pool, chunks, centers)
                if inertia >= last * (1 - 1e-9):
                    break
                centers, last = moved, inertia
            _, inertia = step(pool, chunks, centers)
            if best is None or inertia < best[0]:
                best = inertia, sorted(centers)
    print(json.dumps({"centers": best[1], "inertia": best[0]}))


if __name__ == "__main__":
    main()
EOF
