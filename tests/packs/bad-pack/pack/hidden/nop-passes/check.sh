# Check of nop-passes.
test ! -e answer.txt || test "$(cat answer.txt)" = "three and thirty"
