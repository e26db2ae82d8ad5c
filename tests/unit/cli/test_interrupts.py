from __future__ import annotations

import signal
import subprocess
import sys

from support.interrupts import interruptible

ASK = (sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT))")


def test_children_can_be_interrupted_where_interrupts_are_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        inherited = subprocess.check_output(ASK, text=True)
        with interruptible():
            given = subprocess.check_output(ASK, text=True)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert (int(inherited), "default_int_handler" in given) == (signal.SIG_IGN, True)
