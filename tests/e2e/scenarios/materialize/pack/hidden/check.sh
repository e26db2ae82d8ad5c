set -eu
grep -q "port = 9090" settings.ini
[ "$(./run.sh)" = started ]
[ "$(readlink todo)" = notes/todo.txt ]
[ "$(cat todo)" = "change the port" ]
[ "$(cat data.txt)" = public ]
