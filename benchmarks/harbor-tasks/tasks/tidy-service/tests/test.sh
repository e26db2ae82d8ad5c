#!/bin/bash
conf=$SERVICE_HOME/service.conf
reward=1
fail() { echo "failed: $1"; reward=0; }
[ "$(sort "$conf")" = "$(printf 'port=%s\nworkers=2' "$WANTED_PORT")" ] || fail "configuration"
[ ! -e "$SERVICE_HOME/legacy.pid" ] || fail "legacy.pid"
[ -x /usr/local/bin/service-port ] || fail "command"
[ "$(/usr/local/bin/service-port 2>/dev/null)" = "$WANTED_PORT" ] || fail "port of the command"
[ "$(readlink /etc/service.conf)" = "$conf" ] || fail "link"
[ "$(stat -c %a "$conf")" = 600 ] || fail "mode"
echo "$reward" > /logs/verifier/reward.txt
