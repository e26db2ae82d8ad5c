#!/bin/bash
cat > fast.py <<'EOF'
import json
import math
import random
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    size = int(file.readline())
    rows, columns, values = [], [], []
    for line in file:
        r, c, v = line.split()
        rows.append(int(r))
        columns.append(int(c))
        values.append(float(v))


def times(x):
    y = [0.0] * size
    for r, c, v in zip(rows, columns, values):
        y[r] += v * x[c]
        if r != c:
            y[c] += v * x[r]
    return y


chance = random.Random(1)
vector = [chance.gauss(0, 1) for _ in range(size)]
while True:
    length = math.sqrt(math.fsum(x * x for x in vector))
    vector = [x / length for x in vector]
    product = times(vector)
    value = math.fsum(a * b for a, b in zip(vector, product))
    rest = math.sqrt(math.fsum((p - value * x) ** 2 for p, x in zip(product, vector)))
    if rest <= 3e-7 * abs(value):
        break
    vector = product
print(json.dumps({"value": value, "vector": vector}))
EOF
