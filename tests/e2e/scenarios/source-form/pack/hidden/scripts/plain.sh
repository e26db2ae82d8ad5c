test "$PWD" = /app && test "$TEST_DIR" = /opt/securebench/evaluator/scripts
test -z "$(ls -A "$HOME")" || exit 3
if touch "$TEST_DIR/probe" 2>/dev/null; then exit 4; fi
echo "by sh: $0"
grep -qx 42 answer.txt
