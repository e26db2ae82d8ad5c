#!/bin/bash
echo 0 > /logs/verifier/reward.txt
want=$(python3 - <<'PYTHON'
import json
import urllib.request

with urllib.request.urlopen("http://store:8000/prices.json") as answer:
    prices = json.load(answer)
print(3 * prices["apple"] + prices["bread"] + 2 * prices["cheese"])
PYTHON
) || { rm /logs/verifier/reward.txt; exit 1; }
[ "$(tr -d '[:space:]' < /root/total.txt 2>/dev/null)" = "$want" ] && echo 1 > /logs/verifier/reward.txt
