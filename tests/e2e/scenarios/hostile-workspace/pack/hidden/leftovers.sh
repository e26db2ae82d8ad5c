set -eu
[ "$(cat answer.txt)" = 4 ]
[ "$(readlink inside)" = answer.txt ]
for gone in outside pipe socket device; do
  if [ -e "$gone" ] || [ -L "$gone" ]; then echo "$gone is there" >&2; exit 1; fi
done
[ "$(readlink above)" = ../../etc/passwd ]
[ "$(stat -c %a closed)" = 0 ]
chmod 700 closed
[ "$(stat -c %a closed/secret)" = 0 ]
chmod 400 closed/secret
cat closed/secret
[ "$(stat -c %a run.sh)" = 700 ]
[ "$(./run.sh)" = 4 ]
echo "second: $(cat second)"
