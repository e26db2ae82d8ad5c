#!/usr/bin/env -S python3 -I
import pathlib, sys
print("isolated", sys.flags.isolated)
sys.exit(pathlib.Path("answer.txt").read_text() != "42\n")
