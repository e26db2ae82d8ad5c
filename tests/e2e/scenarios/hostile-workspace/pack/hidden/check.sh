set -eu
[ "$(cat answer.txt)" = 4 ]
