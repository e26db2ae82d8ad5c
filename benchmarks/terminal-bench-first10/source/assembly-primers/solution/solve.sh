#!/bin/bash
python3 - <<'EOF'
names = ("vector", "insert", "tag")
parts = {}
for line in open("parts.fasta"):
    if line.startswith(">"):
        name = line[1:].strip()
        parts[name] = ""
    else:
        parts[name] += line.strip()
back = lambda bases: bases.translate(str.maketrans("ACGT", "TGCA"))[::-1]


def annealing(part):
    tm = lambda n: 64.9 + 41 * (part[:n].count("G") + part[:n].count("C") - 16.4) / n
    return part[: min((n for n in range(18, 31) if 58 <= tm(n) <= 62), key=lambda n: abs(tm(n) - 60))]


with open("primers.fasta", "w") as file:
    for index, name in enumerate(names):
        before, behind = parts[names[index - 1]], parts[names[(index + 1) % 3]]
        file.write(f">{name}_fwd\n{before[-12:]}{annealing(parts[name])}\n")
        file.write(f">{name}_rev\n{back(behind[:12])}{annealing(back(parts[name]))}\n")
EOF
