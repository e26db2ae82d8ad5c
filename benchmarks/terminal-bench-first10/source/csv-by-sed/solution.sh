#!/bin/bash
cat > rewrite.sed <<'EOF'
/^(#|$)/d
s/^id,name.*/name|amount|date|id/
t
s/^([^,]*),([^;]*); ([^,]*),[^,]*,([0-9]*),([0-9]*),(.*)-(.*)-(.*)$/\3 \2|\4.\5|\8.\7.\6|\1/
EOF
