#!/bin/bash
cat > jump.py <<'EOF'
import collections
import json
import pathlib
import sys


def pixels(path):
    text = "\n".join(line.partition("#")[0] for line in path.read_text().splitlines())
    words = text.split()
    width, height = int(words[1]), int(words[2])
    values = list(map(int, words[4:]))
    return [values[r * width : (r + 1) * width] for r in range(height)]


def bottom(grey):
    """Return the lowest row of the square: bright pixels with bright neighbours."""
    bright = {(r, c) for r, row in enumerate(grey) for c, v in enumerate(row) if v > 120}
    kept = [
        r
        for r, c in bright
        if ((r - 1, c) in bright or (r + 1, c) in bright)
    ]
    return max(kept, default=None)


frames = sorted(pathlib.Path(sys.argv[1]).glob("*.pgm"))
heights = [bottom(pixels(path)) for path in frames]
ground = collections.Counter(h for h in heights if h is not None).most_common(1)[0][0]
in_air = [n for n, h in enumerate(heights) if h is not None and h < ground]
print(json.dumps({"takeoff": in_air[0], "landing": in_air[-1] + 1}))
EOF
