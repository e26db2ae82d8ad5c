#!/bin/sh
# answer.txt must hold one integer, the expected one; white space around it does not count.
set -euf
expected=$(cat "$SECUREBENCH_EVALUATOR/expected.txt")
answer=$(head -c 4096 answer.txt | tr -d '\000')
# shellcheck disable=SC2086  # splits at white space; -f keeps patterns from being expanded
set -- $answer
if [ $# -ne 1 ]; then
    echo "answer.txt does not hold exactly one word" >&2
    exit 1
fi
case ${1#[-+]} in
    '' | *[!0-9]*)
        echo "answer.txt does not hold an integer" >&2
        exit 1
        ;;
esac
# Not -ne: an integer beyond the shell's range makes the comparison itself fail.
if [ "${1#+}" -eq "$expected" ]; then
    echo "answer.txt is right"
else
    echo "answer.txt holds another integer" >&2
    exit 1
fi
