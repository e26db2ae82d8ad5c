# Check of payload-in-base64.
test "$(cat answer.txt)" = "nine and twenty"
