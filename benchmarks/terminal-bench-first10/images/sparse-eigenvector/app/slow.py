"""Power iteration with a full matrix: python3 slow.py MATRIX."""

import json
import math
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    size = int(file.readline())
    matrix = [[0.0] * size for _ in range(size)]
    for line in file:
        row, column, value = line.split()
        matrix[int(row)][int(column)] += float(value)
        if row != column:
            matrix[int(column)][int(row)] += float(value)
vector = [1.0] * size
for _ in range(5000):
    length = math.sqrt(sum(x * x for x in vector))
    vector = [x / length for x in vector]
    product = [sum(a * b for a, b in zip(row, vector)) for row in matrix]
    value, vector = sum(a * b for a, b in zip(vector, product)), product
length = math.sqrt(sum(x * x for x in vector))
print(json.dumps({"value": value, "vector": [x / length for x in vector]}))
