"""The primers follow every rule of the task."""

import os
from pathlib import Path

APP = Path(os.environ.get("SECUREBENCH_WORKSPACE", "/app"))

PARTS = ("vector", "insert", "tag")
COMPLEMENT = str.maketrans("ACGT", "TGCA")


def fasta(path):
    known, name = {}, None
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith(">"):
            name = line[1:].split()[0]
            assert name not in known
            known[name] = ""
        elif line.strip():
            known[name] += line.strip()
    return known


def melting(bases):
    return 64.9 + 41 * (bases.count("G") + bases.count("C") - 16.4) / len(bases)


def split(primer, part, before):
    """Return the ways to cut a forward primer into tail and annealing end."""
    return [
        (primer[:tail], primer[tail:])
        for tail in range(10, 16)
        if part.startswith(primer[tail:])
        and before.endswith(primer[:tail])
        and 18 <= len(primer) - tail <= 30
        and 58 <= melting(primer[tail:]) <= 62
    ]


def backwards(bases):
    return bases.translate(COMPLEMENT)[::-1]


def test_primers():
    parts = fasta(Path(__file__).parent / "parts.fasta")
    primers = fasta(APP / "primers.fasta")
    assert sorted(primers) == sorted(f"{part}_{end}" for part in PARTS for end in ("fwd", "rev"))
    assert set("".join(primers.values())) <= set("ACGT")
    for index, name in enumerate(PARTS):
        before, behind = parts[PARTS[index - 1]], parts[PARTS[(index + 1) % 3]]
        forward = split(primers[f"{name}_fwd"], parts[name], before)
        reverse = split(primers[f"{name}_rev"], backwards(parts[name]), backwards(behind))
        assert forward, f"{name}_fwd"
        assert reverse, f"{name}_rev"
        assert any(
            abs(melting(own) - melting(other)) <= 3 for _, own in forward for _, other in reverse
        )
