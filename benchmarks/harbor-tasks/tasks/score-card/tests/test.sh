#!/bin/bash
script=/home/dev/hello.sh
exists=0 named=0 plain=0
[ -x "$script" ] && exists=1
[ "$("$script" Ada 2>/dev/null)" = "Hello, Ada!" ] && named=1
[ "$("$script" 2>/dev/null)" = "Hello, world!" ] && plain=1
owner=$(stat -c %U "$script" 2>/dev/null)
[ "$owner" = dev ] || exists=0
reward=$((exists * named * plain))
printf '{"reward": %d, "exists": %d, "named": %d, "plain": %d}\n' "$reward" "$exists" "$named" "$plain" \
  > /logs/verifier/reward.json
