"""Everything that the score of a run depends on: the one list behind digests and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from securebench.agents.harness import LATEST, CommandHarness, HarnessConfig, ProviderHarness
from securebench.agents.registry import harness_config, harness_digest
from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.digests import json_digest
from securebench.run.api.models import BenchmarkRunSpec, TaskSelector, VerificationSettings
from securebench.run.plan.model import TaskLimits

_DIGESTED_RESOURCES = {"requests", "limits", "workspace"}
_DIGESTED_ISOLATION = {"require", "allow"}
"""Listed by name: otherwise a field added in a later version would change the digests of active
runs, and they could not continue."""

Overlays = Mapping[str, Mapping[str, str]]
"""By harness type: the overlay image of each version, and under ``LATEST`` one of these versions.
The administrator sets them in the chart."""


@dataclass(frozen=True, slots=True)
class ScoreSettings:
    """Settings of the operator that a score depends on.

    Attributes:
        limits: Contract 15.7.
        overlays: Versions of the agents that are offered.
    """

    limits: TaskLimits
    overlays: Overlays = field(default_factory=dict)


class ScoreContext(NamedTuple):
    """What a score depends on besides the spec.

    Args:
        installation: Settings of the operator.
        run_id: Run ID of the records.
        pack_digest: Contract 15.6; None for a pack that was not read.
        audit: Whether the run examines the pack.
        answers: Digest of the reference answers that an oracle hands in, else empty.
        agent_version: CLI version that the run already uses, in place of ``latest``; empty for a
            new run.
    """

    installation: ScoreSettings
    run_id: str | None
    pack_digest: str | None
    audit: bool = False
    answers: str = ""
    agent_version: str = ""


@dataclass(frozen=True, slots=True)
class ScoreFields:
    """Everything that a score depends on.

    The digest of a plan and the name of a suite's run have all of it; only the form differs, since
    neither may change from version to version.

    Attributes:
        run_id: Run ID of the records.
        pack: Digest of the pack.
        harness: Digest of the harness.
        agent: Resolved version of the provider's CLI, as the harness's digest has ``latest`` as it
            is written; empty for a tester's own agent, None for a harness without an agent.
        verifier: Version of the verifier.
        attempts: Attempts of each task.
        tasks: Which rows run.
        verification: The tester's policy for verifiers.
        resources: Resources of the containers.
        isolation: What is required, and what may be open.
        limits: Contract 15.7.
        earlier_run: Run whose attempts or candidates it takes over, and its uid if the spec has it;
            empty for none.
    """

    run_id: str | None
    pack: str | None
    harness: str
    agent: str | None
    verifier: str
    attempts: int
    tasks: TaskSelector
    verification: VerificationSettings
    resources: Mapping[str, object]
    isolation: Mapping[str, object]
    limits: TaskLimits
    earlier_run: str

    @property
    def policy_digest(self) -> str:
        """``sha256:…`` of the rules of a run: verification, limits, resources, isolation."""
        verification = self.verification.model_dump(mode="json", by_alias=False)
        return json_digest(
            {
                "verification": verification,
                "limits": asdict(self.limits),
                "resources": self.resources,
                "isolation": self.isolation,
            }
        )


def spec_harness(spec: BenchmarkRunSpec) -> HarnessConfig:
    """Return the validated harness of a spec.

    Raises:
        ConfigErrors: Its configuration is invalid.
    """
    return harness_config(spec.harness.type, spec.harness.config)


def score_fields(spec: BenchmarkRunSpec, context: ScoreContext) -> ScoreFields:
    """Return everything that the score of a run depends on.

    Where a pack comes from, where Pods go, how many run at once, how often a launch that was lost
    is repeated, and what is kept do not count.

    Raises:
        ConfigErrors: The harness is not valid.
    """
    harness, installation = spec_harness(spec), context.installation
    earlier = spec.regrade or spec.resume_from
    return ScoreFields(
        run_id=context.run_id,
        pack=context.pack_digest,
        harness=harness_digest(
            harness, spec.harness.env, audit=context.audit, answers=context.answers
        ),
        agent=_agent(harness, installation.overlays, context.agent_version),
        verifier=VERIFIER_VERSION,
        attempts=spec.attempts,
        tasks=spec.task_selector,
        verification=spec.verification,
        resources=spec.resources.model_dump(mode="json", include=_DIGESTED_RESOURCES),
        isolation=spec.isolation.model_dump(mode="json", include=_DIGESTED_ISOLATION),
        limits=installation.limits,
        earlier_run="/".join(filter(None, (earlier.run, earlier.uid))) if earlier else "",
    )


def _agent(harness: HarnessConfig, overlays: Overlays, bound_version: str) -> str | None:
    if isinstance(harness, ProviderHarness):
        return agent_version(harness, overlays, bound_version)
    return "" if isinstance(harness, CommandHarness) and harness.image else None


def agent_version(harness: ProviderHarness, overlays: Overlays, bound_version: str = "") -> str:
    """Return the version of a provider's CLI that a run has, or would have if it began now.

    Args:
        harness: Names the requested version, or ``latest``.
        overlays: The versions that the administrator offers.
        bound_version: Version that the run already uses; it replaces ``latest``.
    """
    if harness.version != LATEST:
        return harness.version
    return bound_version or overlays.get(harness.type, {}).get(LATEST, LATEST)
