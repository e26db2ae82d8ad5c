"""The command ``securebench run``: run a tester YAML and fetch the results."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console

from securebench.agents.registry import agent_named, forwarded_env
from securebench.client.inspection.fail_below import score_code
from securebench.client.inspection.results import print_figures, print_reasons, print_result
from securebench.client.output import INTERRUPTED, print_error, print_notices
from securebench.client.session.dependencies import Watching
from securebench.client.session.facade import open_session
from securebench.client.session.run_session import RunEnd, RunSession
from securebench.client.submit.env_file import load_env_file
from securebench.client.submit.prepare import PreparedSubmission, prepare
from securebench.client.submit.prices import load_prices
from securebench.client.submit.secrets import without_value
from securebench.client.submit.tester_config import (
    TesterConfig,
    load_tester_config,
    with_tester_overrides,
)
from securebench.client.volume.connection import ClusterTarget
from securebench.client.watch.agent_events import shown_agent
from securebench.client.watch.live_reporter import LiveReporter, can_draw
from securebench.client.watch.progress import (
    LineReporter,
    Reporter,
    WarningReporter,
    stderr_console,
)
from securebench.client.watch.trace import AgentOutputReporter
from securebench.run.api.status import Reason

_ENV_FILE: Final = Path(".env")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The flags of ``securebench run`` (contract 2.1), and the cluster.

    Attributes:
        env_file: None where the flag was not given: then ``.env`` holds, if there is one.
    """

    config: Path
    env_file: Path | None
    limit: int | None
    resume: bool
    parallelism: int | None
    target: ClusterTarget
    output_dir: Path | None = None
    quiet: bool = False
    show_command_output: bool = False
    show_agent_output: bool = False
    fail_below: float | None = None
    attempts: int | None = None
    prices: Path | None = None
    budget_tokens: int | None = None


class RunCommand:
    """One invocation of ``securebench run``."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._session: RunSession | None = None

    def __call__(self) -> int:
        """Execute the command and return the exit code."""
        options = self._options
        config, prepared = prepared_run(options)
        try:
            end = asyncio.run(self._execute(config, prepared))
        except KeyboardInterrupt:
            self._print_rejoin_hint()
            return INTERRUPTED
        return conclude(end, is_quiet=options.quiet, fail_below=options.fail_below)

    async def _execute(self, config: TesterConfig, prepared: PreparedSubmission) -> RunEnd:
        options = self._options
        with self._reporter(config) as reporter:
            async with open_session(
                config,
                prepared,
                reporter,
                options.target,
                options.parallelism,
                self._watching(config),
            ) as session:
                self._session = session
                return await session.execute()

    def _watching(self, config: TesterConfig) -> Watching:
        options = self._options
        if options.quiet:
            return Watching()
        shows_output = options.show_agent_output and is_live(config)
        return Watching(shows_output, in_flight=can_draw(stderr_console()))

    @contextmanager
    def _reporter(self, config: TesterConfig) -> Iterator[Reporter]:
        console = stderr_console()
        show_output = self._options.show_command_output
        if self._options.quiet:
            yield WarningReporter(console)
        elif can_draw(console):
            with LiveReporter(console, time.monotonic, show_command_output=show_output) as live:
                yield self._with_agent_output(live, console, config)
        else:
            lines = LineReporter(console, show_command_output=show_output, clock=time.monotonic)
            yield self._with_agent_output(lines, console, config)

    def _with_agent_output(
        self, reporter: Reporter, console: Console, config: TesterConfig
    ) -> Reporter:
        if not self._options.show_agent_output:
            return reporter
        command = config.harness.config.get("command", "")
        text = " ".join(map(str, command)) if isinstance(command, list) else str(command)
        return AgentOutputReporter(reporter, console, shown_agent(config.harness.type, text))

    def _print_rejoin_hint(self) -> None:
        if self._session is None or self._session.name is None:
            sys.stderr.write("securebench: interrupted; nothing was started\n")
            return
        command = shlex.join(["securebench", *sys.argv[1:]])
        sys.stderr.write(
            f"securebench: interrupted; BenchmarkRun {self._session.name} continues."
            f" Follow it again with: {command}\n"
        )


def prepared_run(options: RunOptions) -> tuple[TesterConfig, PreparedSubmission]:
    """Read and check everything local, and print what is suspicious.

    Raises:
        ConfigErrors: Configuration or pack are invalid.
    """
    env_file = options.env_file or _ENV_FILE
    load_env_file(env_file)
    if options.env_file is not None and not env_file.exists():
        print_notices([f"--env-file: there is no file {env_file}; no variable comes from it"])
    config = with_tester_overrides(
        load_tester_config(options.config),
        output_dir=options.output_dir,
        attempts=options.attempts,
        limit=options.limit,
        resume=options.resume,
        budget_tokens=options.budget_tokens,
    )
    if options.prices is not None:
        config = replace(config, prices={**config.prices, **load_prices(options.prices)})
    prepared = prepare(config)
    print_notices(prepared.warnings)
    print_notices(_missing_variables(config, env_file))
    return config, prepared


def _missing_variables(config: TesterConfig, env_file: Path) -> Iterator[str]:
    if agent_named(config.harness.type).cli is not None:
        return
    for name in without_value(config.harness, os.environ):
        yield (
            f"harness.env: {name} is not set, so the harness runs without it;"
            f" set it in the environment or in {env_file}"
        )


def is_live(config: TesterConfig) -> bool:
    """Whether the agent's output can be shown while it works.

    Values of ``harness.env`` can be scrubbed only from complete outputs, so with any such value
    nothing is shown before the record arrives.
    """
    harness = config.harness
    return agent_named(harness.type).cli is not None and not forwarded_env(
        harness.type, harness.env, harness.config
    )


def conclude(end: RunEnd, *, is_quiet: bool = False, fail_below: float | None = None) -> int:
    """Print the end of a run and return the exit code.

    Args:
        end: How the run ended.
        is_quiet: Whether to leave out why attempts did not pass.
        fail_below: Smallest score that is accepted; None accepts every score.
    """
    summary = end.summary
    if summary is not None and not is_quiet:
        print_reasons(Path(summary.output_path))
        print_figures(summary)
    if end.exit_code != 0 or summary is None:
        print_error(end.failure())
        return end.exit_code or 1
    if end.state.reason == Reason.INCOMPLETE:
        missing = summary.total - summary.verified
        print_notices([f"{missing} of {summary.total} attempts have no verdict"])
    code = score_code(summary.passed, summary.verified, fail_below)
    return print_result(summary) or code
