# Check of image-with-removed-check.
test "$(cat answer.txt)" = "seven and forty"
