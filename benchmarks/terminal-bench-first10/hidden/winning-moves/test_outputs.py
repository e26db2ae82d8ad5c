"""The program finds the winning moves on boards that the agent has not seen."""

import os
import random
import subprocess
import sys
from pathlib import Path

APP = Path(os.environ.get("SECUREBENCH_WORKSPACE", "/app"))

SIZE = 15
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))


def run_length(board, row, column, step, player):
    total = 1
    for sign in (1, -1):
        r, c = row + sign * step[0], column + sign * step[1]
        while 0 <= r < SIZE and 0 <= c < SIZE and board[r][c] == player:
            total += 1
            r, c = r + sign * step[0], c + sign * step[1]
    return total


def winning(board, player):
    return [
        (row, column)
        for row in range(SIZE)
        for column in range(SIZE)
        if board[row][column] == "."
        and any(run_length(board, row, column, step, player) == 5 for step in DIRECTIONS)
    ]


def found(board, player):
    done = subprocess.run(
        [sys.executable, str(APP / "moves.py"), player],
        input="".join(f"{line}\n" for line in board),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


def with_stones(stones):
    board = [["."] * SIZE for _ in range(SIZE)]
    for row, column, player in stones:
        board[row][column] = player
    return ["".join(line) for line in board]


def test_empty_board():
    assert found(with_stones([]), "X") == []


def test_edges():
    board = with_stones([(0, c, "X") for c in range(4)] + [(r, 14, "O") for r in range(11, 15)])
    assert found(board, "X") == [(0, 4)]
    assert found(board, "O") == [(10, 14)]


def test_six_in_a_row_do_not_win():
    board = with_stones([(5, c, "X") for c in (1, 2, 3, 5, 6)])
    assert found(board, "X") == []


def test_five_beside_a_longer_row():
    longer = [(5, c, "X") for c in (1, 2, 3, 5, 6)]
    board = with_stones(longer + [(r, 4, "X") for r in (1, 2, 3, 4)])
    assert found(board, "X") == winning(board, "X")
    assert (5, 4) in found(board, "X")


def test_boards_by_chance():
    seen = 0
    for seed in range(12):
        chance = random.Random(f"board {seed}")
        board = ["".join(chance.choices("XO.", (5, 3, 2), k=SIZE)) for _ in range(SIZE)]
        want = winning(board, "X")
        seen += len(want)
        assert found(board, "X") == want
        assert found(board, "O") == winning(board, "O")
    assert seen > 5
