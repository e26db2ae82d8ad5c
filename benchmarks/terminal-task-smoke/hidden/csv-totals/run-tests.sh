#!/bin/sh
# Isolated mode: nothing of the candidate's workspace is imported.
set -eu
exec python3 -I -B "$TEST_DIR/test_totals.py"
