"""Prints the number of lines of each day."""

import json
from pathlib import Path

print(
    json.dumps({path.stem: len(path.read_text().splitlines()) for path in Path("logs").iterdir()})
)
