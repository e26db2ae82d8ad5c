#!/bin/bash
# Only the artifacts of the agent are here: its report and the folder out, without the files that are left out.
echo 0 > /logs/verifier/reward.txt
[ ! -e logs ] || exit 1
[ ! -e out/stale.txt ] || exit 1
[ -z "$(find out -name '*.tmp')" ] || exit 1
[ "$(cat out/errors.txt 2>/dev/null)" = 3 ] || exit 1
python3 -c 'import json; assert json.load(open("report.json")) == {"users": ["ada", "grace", "linus"]}' || exit 1
echo 1 > /logs/verifier/reward.txt
