"""Answers questions on its standard input for one network: y for every line "? x1 x2 x3 x4"."""

import sys

ROWS = [[1.0, 0.5, -0.5, 0.25], [-0.75, 1.5, 0.0, 1.0], [0.2, -0.4, 1.2, -1.1]]
BIASES = [0.5, -0.25, 0.1]
OUTER = [1.5, -0.75, 1.0]

for line in sys.stdin:
    if not line.startswith("?"):
        break
    x = [float(word) for word in line[1:].split()]
    sums = [sum(a * b for a, b in zip(row, x)) + bias for row, bias in zip(ROWS, BIASES)]
    print(repr(sum(v * max(0.0, s) for v, s in zip(OUTER, sums))), flush=True)
