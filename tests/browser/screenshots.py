"""Pictures for the documentation, of two real runs; `make screenshots` writes docs/images/.

The agents of both runs are programs that guess bodies of functions; the second knows fewer guesses.
"""

from __future__ import annotations

import io
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from playwright.sync_api import Page, sync_playwright
from rich.console import Console

from securebench.cli.main import main as command_line
from securebench.client import run
from securebench.client.live import LiveReporter
from securebench.client.progress import Event
from support.chromium import CHROMIUM, FLAGS
from support.release import ROOT

PACK = ROOT / "benchmarks" / "humaneval-mini"
IMAGES = ROOT / "docs" / "images"
GUESS = ', "[x for x in {0} if {1} in x]", "[x for x in {0} if x > {1}]"'
"""What the second agent does not try."""
ATTEMPTS = 2
WIDTH = 1100
COLUMNS = 100
DRAWN_AT = 4
"""Finished attempts at which the live view is drawn, at the next look."""


class Photographer(LiveReporter):
    """Keeps one picture of the live view while it goes on."""

    def report(self, event: str, **fields: object) -> None:
        """Draw the view once, when attempts have ended and others are in flight."""
        super().report(event, **fields)
        target = Path(os.environ["SCREENSHOT"])
        done = 0 if self._view is None else self._view.done
        if (
            event == Event.IN_FLIGHT
            and done >= DRAWN_AT
            and self._in_flight
            and not target.exists()
        ):
            console = Console(record=True, width=COLUMNS, file=io.StringIO())
            console.print(self.render())
            console.save_svg(str(target), title="securebench run")


def main() -> None:
    """Run both agents and write the pictures."""
    if sys.argv[1:2] == ["live"]:
        run.LiveReporter = Photographer
        sys.argv = ["securebench", "run", *sys.argv[2:]]
        command_line()
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        results = [ran(Path(folder), "all-guesses", ""), ran(Path(folder), "fewer-guesses", GUESS)]
        for words in (
            ("report", str(results[0]), "--output", "report.html"),
            ("compare", *map(str, results), "--html", "compare.html"),
        ):
            command = (sys.executable, "-m", "securebench.cli", *words)
            subprocess.run(command, cwd=folder, check=True)
        photograph(Path(folder))


def ran(folder: Path, name: str, left_out: str) -> Path:
    """Run the pack on a terminal and return its results, below the folder."""
    copy = folder / name
    shutil.copytree(PACK, copy)
    tester = yaml.safe_load((copy / "tester.yaml").read_text(encoding="utf-8"))
    command = tester["harness"]["config"]["command"]
    assert left_out in command
    tester["harness"]["config"]["command"] = command.replace(left_out, "")
    tester["run"] = {"id": name, "output_dir": "results"}
    (copy / "tester.yaml").write_text(yaml.safe_dump(tester), encoding="utf-8")
    os.environ["SCREENSHOT"] = str(IMAGES / "live.svg" if not left_out else copy / "second.svg")
    Path(os.environ["SCREENSHOT"]).unlink(missing_ok=True)
    options = ("--config", str(copy / "tester.yaml"), "--attempts", str(ATTEMPTS), *sys.argv[1:])
    ended = pty.spawn([sys.executable, "-m", "browser.screenshots", "live", *options])
    assert os.waitstatus_to_exitcode(ended) == 0
    return Path(name, "results")


def photograph(folder: Path) -> None:
    """Write pictures of the pages."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for name, scheme, height in (
            ("report-light", "light", 900),
            ("report-dark", "dark", 900),
            ("task", "light", 700),
            ("compare", "light", 700),
        ):
            context = browser.new_context(
                color_scheme=scheme, viewport={"width": WIDTH, "height": height}
            )
            page = context.new_page()
            source = "compare.html" if name == "compare" else "report.html"
            page.goto((folder / source).as_uri())
            if name == "task":
                open_first_failure(page)
            page.screenshot(path=IMAGES / f"{name}.png")
            context.close()
        browser.close()


def open_first_failure(page: Page) -> None:
    """Open the first attempt that did not pass, and go there."""
    summary = page.locator("details.attempt summary").first
    summary.click()
    summary.evaluate("element => element.scrollIntoView()")


if __name__ == "__main__":
    main()
