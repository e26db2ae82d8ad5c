set -eu
here=$(dirname "$0")
[ "$(cat out/total.txt)" = "$(cat "$here/expected.txt")" ]
[ "$(tail -n 1 log.txt)" = summed ] || { echo "the log says: $(tail -n 1 log.txt)" >&2; exit 1; }
if echo 99 > "$here/expected.txt"; then echo "inputs are writable" >&2; exit 1; fi
if echo 99 > data/numbers.txt; then echo "assets are writable" >&2; exit 1; fi
[ "$HOME" != /root ] && [ -z "$(ls -A "$HOME")" ]
echo checked
