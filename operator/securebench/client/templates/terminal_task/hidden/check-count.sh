#!/bin/sh
# Runs in the agent's workspace, in a fresh container; exit code 0 is a pass.
test "$(cat answer.txt)" = 3
