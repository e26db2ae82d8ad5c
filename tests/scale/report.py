"""What a report on a run of 10,000 records costs, to write and to open: ``make scale`` prints it.

Records are synthetic; half of their tasks pass. Chromium has opened the page when its load event is
over and it has drawn a frame since.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from securebench.sizes import MIB
from support.chromium import CHROMIUM, FLAGS
from support.result_folders import result_folder, result_line

ROUNDS = 3
DIFFICULTIES = ("easy", "medium", "hard")
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def lines(records: int, size_bytes: int) -> Iterator[str]:
    """Yield records as candidates.jsonl has them, each about so large."""
    text = "what the agent printed\n" * (size_bytes // 46)
    for number in range(records):
        made = result_line(
            f"task-{number}",
            passed=number % 2 == 0,
            difficulty=DIFFICULTIES[number % len(DIFFICULTIES)],
            producer_stdout=text,
            verifier_stdout=text,
        )
        yield json.dumps(made)


def write(results: Path, page: Path) -> float:
    """Return the seconds of ``securebench report``, its start included."""
    began = time.perf_counter()
    words = ("report", str(results), "--output", str(page))
    subprocess.run([sys.executable, "-m", "securebench.cli", *words], check=True)
    return time.perf_counter() - began


def opened(browser: Browser, page: Path) -> float:
    """Return the seconds until a page stands there."""
    tab = browser.new_page()
    tab.set_default_timeout(60_000)
    began = time.perf_counter()
    tab.goto(page.as_uri(), wait_until="load")
    tab.evaluate(DRAWN)
    seconds = time.perf_counter() - began
    tab.close()
    return seconds


def main() -> None:
    """Write the records and the page, and open it."""
    parser = argparse.ArgumentParser(prog="python -m scale.report", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="0: measure nothing")
    parser.add_argument("--bytes", type=int, default=7_000, help="of a record, about")
    chosen = parser.parse_args()
    if not chosen.records:
        return
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        root = Path(name)
        results = result_folder(root / "results", lines(chosen.records, chosen.bytes))
        written = [write(results, root / "report.html") for _ in range(ROUNDS)]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        shown = [opened(browser, root / "report.html") for _ in range(ROUNDS)]
        browser.close()
        size = (root / "report.html").stat().st_size
    figures = {
        "records": chosen.records,
        "written_seconds": [round(each, 2) for each in written],
        "page_mib": round(size / MIB, 1),
        "opened_seconds": [round(each, 2) for each in shown],
    }
    print(json.dumps({"report": figures}))


if __name__ == "__main__":
    main()
