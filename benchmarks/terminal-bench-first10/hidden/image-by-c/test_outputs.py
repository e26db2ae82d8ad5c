"""The program draws the picture."""

import gzip
import os
import re
import subprocess
from pathlib import Path

APP = Path(os.environ.get("SECUREBENCH_WORKSPACE", "/app"))

SOURCE = APP / "image.c"
HEADERS = {"stdio.h", "stdlib.h", "string.h", "math.h"}


def values(text):
    words = text.split()
    assert words[:4] == ["P3", "48", "32", "255"]
    found = [int(word) for word in words[4:]]
    assert all(0 <= value <= 255 for value in found)
    return found


def test_source_is_small_and_plain():
    text = SOURCE.read_bytes()
    assert len(gzip.compress(text, 9, mtime=0)) <= 1000
    included = re.findall(rb"#\s*include\b(.*)", text)
    assert {name.strip().strip(b'<>"').decode() for name in included} <= HEADERS
    assert not re.search(rb"\basm\b|__asm|incbin|open\s*\(|system|exec|##|%:", text)


def test_picture(tmp_path):
    program = tmp_path / "image"
    empty = tmp_path / "empty"
    empty.mkdir()
    subprocess.run(["tcc", "-o", program, SOURCE, "-lm"], check=True, timeout=10)
    done = subprocess.run(
        [program], cwd=empty, env={}, capture_output=True, text=True, check=False, timeout=10
    )
    assert done.returncode == 0
    found = values(done.stdout)
    want = values((Path(__file__).parent / "image.ppm").read_text(encoding="ascii"))
    assert len(found) == len(want)
    assert sum(abs(a - b) for a, b in zip(found, want)) / len(want) <= 2.0
