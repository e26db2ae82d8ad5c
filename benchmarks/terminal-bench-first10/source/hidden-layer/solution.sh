#!/bin/bash
cat > steal.py <<'EOF'
import json
import random
import sys

INPUTS, UNITS = 4, 3
STEP = 1e-4


def ask(x):
    print("?", *map(repr, x), flush=True)
    return float(sys.stdin.readline())


def along(start, way, t):
    return [a + t * b for a, b in zip(start, way)]


def slope(start, way, t):
    return (ask(along(start, way, t + STEP)) - ask(along(start, way, t - STEP))) / (2 * STEP)


def gradient(x):
    base = []
    for i in range(INPUTS):
        up, down = list(x), list(x)
        up[i] += STEP
        down[i] -= STEP
        base.append((ask(up) - ask(down)) / (2 * STEP))
    return base


def kinks(start, way, low, high, at_low, at_high):
    """Return places where the slope changes, by halving."""
    if abs(at_low - at_high) < 1e-5 or high - low < 1e-2:
        return [] if abs(at_low - at_high) < 1e-5 else [(low + high) / 2]
    middle = (low + high) / 2
    at_middle = slope(start, way, middle)
    return kinks(start, way, low, middle, at_low, at_middle) + kinks(
        start, way, middle, high, at_middle, at_high
    )


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


found = []
chance = random.Random(1)
while len(found) < UNITS:
    start = [chance.gauss(0, 1) for _ in range(INPUTS)]
    way = [chance.gauss(0, 1) for _ in range(INPUTS)]
    for t in kinks(start, way, -20.0, 20.0, slope(start, way, -20.0), slope(start, way, 20.0)):
        before, after = gradient(along(start, way, t - 0.05)), gradient(along(start, way, t + 0.05))
        row = [a - b for a, b in zip(after, before)]
        again = [
            a - b
            for a, b in zip(gradient(along(start, way, t + 0.1)), gradient(along(start, way, t - 0.1)))
        ]
        if max(map(abs, row)) < 1e-3 or abs(cosine(row, again)) < 1 - 1e-7:
            continue
        if all(abs(cosine(row, other)) < 0.97 for other in found) and len(found) < UNITS:
            found.append(row)
print("!", json.dumps(found), flush=True)
EOF
