"""SecureBench: run AI agent benchmarks on Kubernetes and grade them safely.

The names below are the Python facade (contract 2.3). Each is imported when it is first used, so
that importing this package loads nothing else of it and no cluster library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securebench.families.registry import Verifier, verifier_for_task_type
    from securebench.packs.compile import compile_benchmark_pack, compile_benchmark_row
    from securebench.packs.load import load_benchmark_manifest, load_benchmark_pack
    from securebench.packs.task import task_from_spec
    from securebench.tester.config import (
        load_tester_config,
        parse_tester_config,
        with_tester_overrides,
    )
    from securebench.tester.env_file import load_env_file
    from securebench.tester.facade import run_tester_config
    from securebench.tester.summary import TesterRunSummary
    from securebench.tester.verify import candidate_record, verify_candidate
    from securebench.verifiers.result import VerificationResult

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
    "TesterRunSummary": "tester.summary",
    "VerificationResult": "verifiers.result",
    "Verifier": "families.registry",
    "candidate_record": "tester.verify",
    "compile_benchmark_pack": "packs.compile",
    "compile_benchmark_row": "packs.compile",
    "load_benchmark_manifest": "packs.load",
    "load_benchmark_pack": "packs.load",
    "load_env_file": "tester.env_file",
    "load_tester_config": "tester.config",
    "parse_tester_config": "tester.config",
    "run_tester_config": "tester.facade",
    "task_from_spec": "packs.task",
    "verifier_for_task_type": "families.registry",
    "verify_candidate": "tester.verify",
    "with_tester_overrides": "tester.config",
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
