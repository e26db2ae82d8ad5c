#!/bin/bash
set -e
conf=$SERVICE_HOME/service.conf
sed -i "s/^port=.*/port=$NEW_PORT/; /^legacy_mode=/d" "$conf"
rm "$SERVICE_HOME/legacy.pid"
printf '#!/bin/sh\nsed -n "s/^port=//p" %s\n' "$conf" > /usr/local/bin/service-port
chmod 755 /usr/local/bin/service-port
ln -sf "$conf" /etc/service.conf
chmod 600 "$conf"
