#!/bin/bash
# Each result is a quarter of the reward; the last line is what counts.
passed=0
echo 0 > /logs/verifier/reward.txt
[ "$(tr -d '[:space:]' < errors.txt 2>/dev/null)" = 3 ] && passed=$((passed + 1))
[ "$(cat users.txt 2>/dev/null)" = "$(printf 'ada\ngrace\nlinus')" ] && passed=$((passed + 1))
[ "$(tr -d '[:space:]' < first.txt 2>/dev/null)" = 08:59 ] && passed=$((passed + 1))
python3 - <<'PYTHON' && passed=$((passed + 1))
import json

assert json.load(open("days.json")) == {"monday": 5, "tuesday": 4}
PYTHON
python3 -c "print($passed / 4)" > /logs/verifier/reward.txt
exit 1
