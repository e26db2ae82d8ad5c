"""SecureBench: run AI agent benchmarks on Kubernetes and grade them safely.

The names below are the Python facade (contract 2.3). Each is imported when it is first used, so
that importing this package loads nothing else of it and no cluster library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securebench.benchmark.families.registry import Verifier, verifier_for_task_type
    from securebench.benchmark.files.load import load_benchmark_manifest, load_benchmark_pack
    from securebench.benchmark.pack.task import (
        compile_benchmark_pack,
        compile_benchmark_row,
        task_from_spec,
    )
    from securebench.benchmark.scorers.result import VerificationResult
    from securebench.client.run_summary import TesterRunSummary
    from securebench.client.session import run_tester_config
    from securebench.client.submit import load_env_file
    from securebench.client.tester_config import (
        load_tester_config,
        parse_tester_config,
        with_tester_overrides,
    )
    from securebench.client.verify import candidate_record, verify_candidate

__all__ = [
    "TesterRunSummary",
    "VerificationResult",
    "Verifier",
    "candidate_record",
    "compile_benchmark_pack",
    "compile_benchmark_row",
    "load_benchmark_manifest",
    "load_benchmark_pack",
    "load_env_file",
    "load_tester_config",
    "parse_tester_config",
    "run_tester_config",
    "task_from_spec",
    "verifier_for_task_type",
    "verify_candidate",
    "with_tester_overrides",
]

_HOMES = {
    "TesterRunSummary": "client.run_summary",
    "VerificationResult": "benchmark.scorers.result",
    "Verifier": "benchmark.families.registry",
    "candidate_record": "client.verify",
    "compile_benchmark_pack": "benchmark.pack.task",
    "compile_benchmark_row": "benchmark.pack.task",
    "load_benchmark_manifest": "benchmark.files.load",
    "load_benchmark_pack": "benchmark.files.load",
    "load_env_file": "client.submit",
    "load_tester_config": "client.tester_config",
    "parse_tester_config": "client.tester_config",
    "run_tester_config": "client.session",
    "task_from_spec": "benchmark.pack.task",
    "verifier_for_task_type": "benchmark.families.registry",
    "verify_candidate": "client.verify",
    "with_tester_overrides": "client.tester_config",
}


def __getattr__(name: str) -> object:
    """Import a name of the facade."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    """Return the facade's names beside those of the module."""
    return sorted({*globals(), *__all__})
