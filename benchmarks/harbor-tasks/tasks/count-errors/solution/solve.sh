#!/bin/bash
set -e
cat logs/*.log | grep -c error > errors.txt
awk '$2 == "login" {print $3}' logs/*.log | sort -u > users.txt
cat logs/*.log | cut -d' ' -f1 | sort | head -n 1 > first.txt
python3 "$(dirname "$0")/days.py" > days.json
