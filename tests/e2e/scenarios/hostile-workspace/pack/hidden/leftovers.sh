set -eu
[ "$(cat answer.txt)" = 4 ]
[ "$(readlink inside)" = answer.txt ]
for gone in outside above pipe socket device; do
  if [ -e "$gone" ] || [ -L "$gone" ]; then echo "$gone is there" >&2; exit 1; fi
done
cat closed/secret
[ "$(./run.sh)" = 4 ]
echo "second: $(cat second)"
