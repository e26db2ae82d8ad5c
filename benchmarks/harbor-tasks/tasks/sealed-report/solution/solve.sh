#!/bin/bash
set -e
mkdir -p out
cat logs/*.log | grep -c error > out/errors.txt
cat logs/*.log > out/all.tmp
users=$(awk '$2 == "login" {print $3}' logs/*.log | sort -u)
printf '%s\n' $users | python3 -c 'import json, sys; print(json.dumps({"users": sys.stdin.read().split()}))' > report.json
