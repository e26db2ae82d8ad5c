"""What a run is bound to, and everything that its score depends on.

The score fields are the one list behind digests of plans and names of a suite's runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from securebench.agents.harness import LATEST, CommandHarness, HarnessConfig, ProviderHarness
from securebench.agents.registry import harness_config, harness_digest
from securebench.benchmark.pack.oracle import Answers
from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.digests import json_digest
from securebench.protocol.volume import PackAudit
from securebench.run.api.models import BenchmarkRunSpec, TaskSelector, VerificationSettings
from securebench.run.plan.model import EarlierRun, RunIdentity, TaskLimits

_DIGESTED_RESOURCES = {"requests", "limits", "workspace"}
_DIGESTED_ISOLATION = {"require", "allow"}
"""Listed by name: otherwise a field added in a later version would change the digests of active
runs, and they could not continue."""

Overlays = Mapping[str, Mapping[str, str]]
"""By harness type: the overlay image of each version, and under ``LATEST`` one of these versions.
The administrator sets them in the chart."""


@dataclass(frozen=True, slots=True)
class ScoreSettings:
    """Settings of the operator that the score of a run depends on which begins now.

    Attributes:
        limits: Contract 15.7.
        overlays: Versions of the agents that are offered.
    """

    limits: TaskLimits
    overlays: Overlays = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunBinding:
    """What a run keeps from its first start, whatever its labels, the pack and the settings become.

    It is written on the volume once. With spec and pack it leads to the same plan at each start.

    Attributes:
        pack_digest: ``sha256:…`` of the frozen pack; empty for a pack that was not read.
        limits: Bounds on captured data (contract 15.7).
        audit: Whether the run examines its pack.
        pack_audit: Result of the latest audit of the pack when the run started.
        agent_version: Version of a model provider's CLI. A run that continues another one has the
            version of that run, so that ``latest`` means one version throughout.
        overlay: Image of that version; it counts where the settings offer the version no longer.
        answers: What an oracle hands in.
        kept: Indexes of the tasks whose records come from the run that it resumes. They stay in the
            plan unless the pack has fewer tasks, and then its digest differs anyway.
        regrade: The run that is graded again, or None.
    """

    identity: RunIdentity
    pack_digest: str
    limits: TaskLimits
    audit: bool = False
    pack_audit: PackAudit = PackAudit.NONE
    agent_version: str = ""
    overlay: str = ""
    answers: Answers = field(default_factory=Answers)
    kept: frozenset[int] = frozenset()
    regrade: EarlierRun | None = None


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

    run_id: str
    pack: str
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


def score_fields(spec: BenchmarkRunSpec, binding: RunBinding) -> ScoreFields:
    """Return everything that the score of a run depends on.

    Where a pack comes from, where Pods go, how many run at once, how often a launch that was lost
    is repeated, and what is kept do not count.

    Raises:
        ConfigErrors: The harness is not valid.
    """
    harness = spec_harness(spec)
    earlier = spec.regrade or spec.resume_from
    return ScoreFields(
        run_id=binding.identity.run_id,
        pack=binding.pack_digest,
        harness=harness_digest(
            harness, spec.harness.env, audit=binding.audit, answers=binding.answers.digest
        ),
        agent=_agent(harness, binding.agent_version),
        verifier=VERIFIER_VERSION,
        attempts=spec.attempts,
        tasks=spec.task_selector,
        verification=spec.verification,
        resources=spec.resources.model_dump(mode="json", include=_DIGESTED_RESOURCES),
        isolation=spec.isolation.model_dump(mode="json", include=_DIGESTED_ISOLATION),
        limits=binding.limits,
        earlier_run="/".join(filter(None, (earlier.run, earlier.uid))) if earlier else "",
    )


def _agent(harness: HarnessConfig, version: str) -> str | None:
    if isinstance(harness, ProviderHarness):
        return version
    return "" if isinstance(harness, CommandHarness) and harness.image else None


def agent_version(harness: HarnessConfig, overlays: Overlays, bound_version: str = "") -> str:
    """Return the version of a provider's CLI that a run has, or would have if it began now.

    Args:
        harness: Names the requested version, or ``latest``; empty for other harnesses.
        overlays: The versions that the administrator offers.
        bound_version: Version that the run already uses; it replaces ``latest``.
    """
    if not isinstance(harness, ProviderHarness):
        return ""
    if harness.version != LATEST:
        return harness.version
    return bound_version or overlays.get(harness.type, {}).get(LATEST, LATEST)
