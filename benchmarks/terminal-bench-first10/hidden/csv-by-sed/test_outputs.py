"""The script rewrites files that the agent has not seen."""

import os
import subprocess
from pathlib import Path

APP = Path(os.environ.get("SECUREBENCH_WORKSPACE", "/app"))

SCRIPT = APP / "rewrite.sed"


def rewritten(tmp_path, text):
    source = tmp_path / "in.csv"
    source.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["sed", "--sandbox", "-E", "-f", str(SCRIPT), str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_script_is_short():
    assert 0 < SCRIPT.stat().st_size <= 300


def test_lines(tmp_path):
    text = (
        "id,name,city,amount,date\n"
        "\n"
        "# 1,a; b,c,1,2,2000-01-02\n"
        "17,van der Berg; Jan-Piet,St. Gallen,0,05,1999-12-31\n"
        "200001,O. Neil; Q.,X,123456,75,2001-02-03\n"
    )
    assert rewritten(tmp_path, text) == (
        "name|amount|date|id\n"
        "Jan-Piet van der Berg|0.05|31.12.1999|17\n"
        "Q. O. Neil|123456.75|03.02.2001|200001\n"
    )


def test_a_large_file(tmp_path):
    lines = [
        f"{n},L{n}; F{n},City {n % 7},{n},{n % 100:02},20{n % 90 + 10}-05-{n % 28 + 1:02}"
        for n in range(200000)
    ]
    want = [
        f"F{n} L{n}|{n}.{n % 100:02}|{n % 28 + 1:02}.05.20{n % 90 + 10}|{n}" for n in range(200000)
    ]
    found = rewritten(tmp_path, "id,name,city,amount,date\n" + "\n".join(lines) + "\n")
    assert found.splitlines() == ["name|amount|date|id", *want]
