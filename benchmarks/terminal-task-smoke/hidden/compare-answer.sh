#!/bin/sh
# Compare answer.txt of the workspace with the file named by the first argument; white space at
# the ends of lines and trailing empty lines do not count.
set -eu
trim='s/^[[:space:]]*//; s/[[:space:]]*$//'
expected=$(sed "$trim" "$1")
answer=$(head -c 4096 answer.txt | sed "$trim")
if [ "$answer" != "$expected" ]; then
    echo "answer.txt holds another answer" >&2
    exit 1
fi
echo "answer.txt is right"
