#!/bin/bash
python3 - > total.txt <<'PYTHON'
import json
import urllib.request

with urllib.request.urlopen("http://store:8000/prices.json") as answer:
    prices = json.load(answer)
print(3 * prices["apple"] + prices["bread"] + 2 * prices["cheese"])
PYTHON
