#!/bin/sh
# answer.txt must hold the expected line; white space around it does not count.
set -eu
expected=$(cat "$SECUREBENCH_EVALUATOR/expected.txt")
answer=$(head -c 4096 answer.txt | tr -d '\000' | sed 's/^[[:space:]]*//; s/[[:space:]]*$//; /^$/d')
if [ "$answer" != "$expected" ]; then
    echo "answer.txt holds another text" >&2
    exit 1
fi
echo "answer.txt is right"
