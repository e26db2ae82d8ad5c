#!/bin/bash
cat > moves.py <<'EOF'
import sys

player = sys.argv[1]
board = {(r, c): s for r, line in enumerate(sys.stdin.read().split()) for c, s in enumerate(line)}


def count(place, step):
    total = 0
    while board.get(place := (place[0] + step[0], place[1] + step[1])) == player:
        total += 1
    return total


for place in sorted(board):
    steps = ((0, 1), (1, 0), (1, 1), (1, -1))
    rows = [1 + count(place, s) + count(place, (-s[0], -s[1])) for s in steps]
    if board[place] == "." and 5 in rows:
        print(*place)
EOF
