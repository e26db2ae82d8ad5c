"""A suite kept in git, applied by Flux; ``make gitops`` prints commit, runs and health.

Flux's controllers and Argo CD's engine for health checks are real, built from their Go modules, and
so are SecureBench and its runs. The exit code is 1 where a commit does not lead to what it has to.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from gitops.engines import Health, argocd_health, flux, flux_objects
from gitops.repository import Repository, served
from gitops.story import Commit, commits
from gitops.watcher import Applied, Watcher
from support.documented import ROOT, Reader
from support.release import Release, release

WIDTH = 170
COLUMNS = ("commit", "runs made", "Flux: Kustomization", "Argo CD: suite", "message")
FETCH = "reconcile.fluxcd.io/requestedAt"
"""Annotation by which ``flux reconcile``, and a webhook of the repository, ask for a fetch."""
FLUX_STATES = {True: ("True", "ReconciliationSucceeded"), False: ("False", "HealthCheckFailed")}
"""Status and reason of the Kustomization's Ready, by whether the suite is healthy."""
SETTINGS = "argocd-cm"
OTHER_SETTING = "url=https://argocd.example.org"
"""What Argo CD's administrator has set already; it has to stay."""
ARGOCD_STATES = {True: "Healthy", False: "Degraded"}


class Row(NamedTuple):
    """What a commit led to.

    Attributes:
        commit: The commit.
        applied: What was seen.
        suite: Health of the suite in Argo CD, in the states that it went through.
        runs: Health of each new run at the end.
    """

    commit: Commit
    applied: Applied
    suite: list[Health]
    runs: list[Health]

    def problems(self) -> Iterator[str]:
        """Say what is not as it has to be."""
        want, ready, argocd = self.commit, self.applied.ready, self.suite[-1]
        cells = self.applied.cells()
        if cells != want.want_cells:
            yield f"ran {', '.join(cells) or 'nothing'}, not {', '.join(want.want_cells)}"
        if (ready["status"], ready["reason"]) != FLUX_STATES[want.is_healthy]:
            yield f"Flux says {ready['reason']}"
        if argocd.status != ARGOCD_STATES[want.is_healthy]:
            yield f"Argo CD says {argocd.status}"
        if cells and "Progressing" not in {each.status for each in self.suite}:
            yield "Argo CD did not show that cells run"
        if any(each.status != ARGOCD_STATES[True] for each in self.runs):
            yield "Argo CD does not call every run healthy"
        if want.want_said not in argocd.message:
            yield f"{want.want_said!r} is not in the message"

    def cells(self) -> list[str]:
        """Return the row of the table."""
        ready = self.applied.ready
        states = [state for state, _ in groupby(each.status for each in self.suite)]
        problems = "".join(f"[red]{problem}[/]\n" for problem in self.problems())
        message = "" if self.suite[-1].status == ARGOCD_STATES[True] else self.suite[-1].message
        return [
            self.commit.what,
            f"{len(self.applied.cells())} {' '.join(self.applied.cells())}".strip(),
            "Ready" if ready["status"] == "True" else ready["message"],
            " → ".join(states),
            problems + message,
        ]


def follow(installed: Release, repository: Repository) -> Iterator[tuple[Commit, Applied]]:
    """Make the commits one after the other, and yield what was seen of each."""
    watcher = Watcher(installed.namespace)
    for commit in commits():
        commit.edit(repository)
        digest = repository.commit(commit.what)
        value = f"{FETCH}={digest}"
        installed.kubectl("annotate", "--overwrite", "gitrepository", "suites", value)
        applied = watcher.until_applied(digest)
        Console().print(f"{commit.what}: {len(applied.cells())} runs")
        yield commit, applied


def judged(settings: Path, commit: Commit, applied: Applied) -> Row:
    """Return the row of a commit, with the health of what was seen in Argo CD."""
    last = {run["metadata"]["uid"]: run for run in applied.runs}
    suite = argocd_health(settings, applied.suites) or [Health("Missing", "")]
    return Row(commit, applied, suite, argocd_health(settings, [*last.values()]))


def rows(stack: ExitStack, folder: Path) -> list[Row]:
    """Install, and follow the commits and the how-to page."""
    installed = stack.enter_context(release("sb-gitops", {}))
    repository = Repository(folder / "suites")
    url = stack.enter_context(served(repository))
    stack.enter_context(flux(installed, folder))
    own = {
        "-n bench": f"-n {installed.namespace}",
        "-n argocd": f"-n {installed.namespace}",
        "benchmarks/suites/flux/suites.yaml": str(flux_objects(folder, url, installed.namespace)),
    }
    page = Reader("how-to/flux-and-argocd.md", ROOT, filled_in=own)
    page.run_next()
    seen = [*follow(installed, repository)]
    installed.kubectl("create", "configmap", SETTINGS, f"--from-literal={OTHER_SETTING}")
    page.run_all()
    found = installed.get("configmap", SETTINGS)
    assert OTHER_SETTING in {f"{key}={value}" for key, value in found["data"].items()}
    settings = folder / f"{SETTINGS}.json"
    settings.write_text(json.dumps(found), encoding="utf-8")
    return [judged(settings, commit, applied) for commit, applied in seen]


def main() -> int:
    """Print the table; return the exit code."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gitops-")))
        found = rows(stack, folder)
    table = Table(*COLUMNS, title="a suite in git", show_lines=True)
    for row in found:
        table.add_row(*row.cells())
    Console(width=WIDTH).print(table)
    return 1 if any(True for row in found for _ in row.problems()) else 0


if __name__ == "__main__":
    sys.exit(main())
