"""Compare totals.json of the workspace with the expected totals."""

import json
import math
import sys
from pathlib import Path

expected = json.loads((Path(__file__).parent / "expected.json").read_text(encoding="utf-8"))
totals = json.loads(Path("totals.json").read_text(encoding="utf-8"))
if sorted(totals) != sorted(expected):
    sys.exit(f"totals.json names {sorted(totals)}")
wrong = [
    customer
    for customer, total in expected.items()
    if not math.isclose(totals[customer], total, abs_tol=0.001)
]
if wrong:
    sys.exit(f"totals.json is wrong for {', '.join(wrong)}")
print("totals.json is right")
