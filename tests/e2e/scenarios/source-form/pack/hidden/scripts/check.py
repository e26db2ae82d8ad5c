#!/usr/bin/env -S python3 -I
import sys
from pathlib import Path

sys.stdout.write(f"isolated {sys.flags.isolated}\n")
sys.exit(Path("answer.txt").read_text(encoding="utf-8") != "42\n")
