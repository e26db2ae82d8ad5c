"""The pattern finds the right request ids in logs that the agent has not seen."""

import os
import re
from pathlib import Path

APP = Path(os.environ.get("SECUREBENCH_WORKSPACE", "/app"))

LOG = """\
2024-05-01T00:00:00Z ERROR req-00000001 255.255.255.255 x
2024-05-01T00:00:00Z ERROR req-00000002 256.1.1.1
2024-05-01T00:00:00Z ERROR req-00000003 1.2.3
2024-05-01T00:00:00Z ERROR req-00000004 01.2.3.4
2024-05-01T00:00:00Z ERROR req-00000005 1.2.3.4.5
2024-05-01T00:00:00Z ERROR req-00000006 a1.2.3.4
2024-05-01T00:00:00Z ERROR req-00000007 1.2.3.4b
2024-05-01T00:00:00Z ERROR req-00000008 0.0.0.0
2024-05-01T00:00:00Z ERROR req-00000009 bad 999.9.9.9 good 9.9.9.9, both
2024-05-01T00:00:00Z ERROR req-0000000a ends with 7.7.7.7.
2024-05-01T00:00:00Z INFO req-0000000b 1.2.3.4
2024-05-01T00:00:00Z INFO ERROR req-0000000c 1.2.3.4
2024-05-01T00:00:00Z ERRORS req-0000000d 1.2.3.4
2024-05-01T00:00:00Z ERROR req-0000000E 1.2.3.4
2024-05-01T00:00:00Z ERROR req-0000000f0 1.2.3.4
2024-05-01T00:00:00Z ERROR req-00000010
1.2.3.4 ERROR req-00000011 none
2024-05-01T00:00:00Z ERROR req-00000012 (10.20.30.40)
2024-05-01T00:00:00Z ERROR req-00000013 req-00000014 4.3.2.1
"""
WANT = [
    f"req-{n}" for n in ("00000001", "00000008", "00000009", "0000000a", "00000012", "00000013")
]


def pattern():
    text = (APP / "pattern.txt").read_text(encoding="utf-8")
    assert len(text.strip().splitlines()) == 1
    return text.strip("\n")


def test_log_of_the_task():
    log = (Path(__file__).parent / "service.log").read_text(encoding="utf-8")
    assert re.findall(pattern(), log, re.MULTILINE) == ["req-1111aaaa", "req-5555eeee"]


def test_other_lines():
    assert re.findall(pattern(), LOG, re.MULTILINE) == WANT


def test_many_lines_take_no_time():
    log = "2024-05-01T00:00:00Z ERROR req-00000001 " + "1.2.3." * 200 + "x\n"
    assert re.findall(pattern(), log * 50, re.MULTILINE) == []
