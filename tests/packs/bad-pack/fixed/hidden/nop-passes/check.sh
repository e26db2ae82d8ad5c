# Check of nop-passes.
test "$(cat answer.txt)" = "three and thirty"
