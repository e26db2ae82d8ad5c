"""Answers of the API server, and connections to it."""

from __future__ import annotations

from functools import partial

from chaos.kit.cluster import answer
from chaos.kit.registry import ANY, LAUNCHES, Act, fault
from chaos.kit.scene import Scene
from securebench.cluster.port import ObjectKind, QuotaExceeded
from securebench.errors import ClusterError, TransientClusterError
from securebench.run.observe.pods import PodView

AWAY_SECONDS = 60.0
SLOW_SECONDS = 20.0
POD = ObjectKind.POD


def fail(
    verb: str,
    error: ClusterError,
    *,
    times: int = 1,
    took_effect: bool = False,
    kind: ObjectKind | None = None,
) -> Act:
    """Return an injector that makes the next requests of a verb fail."""
    kind = kind or (ObjectKind.BENCHMARK_RUN if verb == "patch_status" else POD)

    def act(scene: Scene, _: PodView) -> None:
        for _ in range(times):
            scene.cluster.fail_next(verb, error, before=not took_effect, kind=kind)
        scene.must_feel.append(lambda: not scene.cluster.is_to_fail)

    return act


CUT = TransientClusterError("connection reset")
BEFORE_LAST = tuple(moment for moment in LAUNCHES if moment.role == "harness")
"""Stages after which launches are created for certain."""

for kind, verb, error, times, took_effect in (
    ("create-429", "create", answer(429, retry_after="7"), 3, False),
    ("create-500", "create", answer(500), 3, False),
    ("create-409", "create", answer(409), 3, False),
    ("create-401", "create", answer(401), 3, False),
    ("create-403", "create", answer(403), 2, False),
    ("create-cut", "create", CUT, 2, False),
    ("create-answer-lost", "create", CUT, 2, True),
    ("create-504-done", "create", answer(504), 2, True),
    ("create-quota", "create", QuotaExceeded("exceeded quota: pods"), 3, False),
    ("delete-500", "delete_collection", answer(500), 1, False),
    ("delete-409", "delete_collection", answer(409), 1, False),
    ("delete-410", "delete_collection", answer(410), 1, False),
    ("delete-answer-lost", "delete_collection", CUT, 1, True),
    ("status-500", "patch_status", answer(500), 3, False),
    ("status-409", "patch_status", answer(409), 3, False),
    ("status-answer-lost", "patch_status", CUT, 3, True),
):
    moments = BEFORE_LAST if verb == "create" else ANY
    fault(kind, moments)(fail(verb, error, times=times, took_effect=took_effect))


@fault("list-500")
def list_500(scene: Scene, _: PodView) -> None:
    scene.cluster.fail_next("list", answer(500), kind=POD)
    scene.cluster.end_watches(CUT)


@fault("list-410")
def list_410(scene: Scene, _: PodView) -> None:
    scene.cluster.fail_next("list", answer(503), kind=POD)
    scene.cluster.expire_history()


@fault("watch-429")
def watch_429(scene: Scene, _: PodView) -> None:
    scene.cluster.fail_next("watch", answer(429), kind=POD)
    scene.cluster.end_watches()


def away(error: ClusterError, scene: Scene, _: PodView) -> None:
    """Answer nothing but this for a minute, on open watches too."""
    weather = scene.cluster.weather
    weather.error, weather.bad_until = error, scene.clock.now() + AWAY_SECONDS
    scene.cluster.end_watches(CUT)


fault("api-away")(partial(away, CUT))
fault("api-503")(partial(away, answer(503)))
fault("api-429")(partial(away, answer(429, retry_after="1")))


@fault("api-slow")
def slow(scene: Scene, _: PodView) -> None:
    weather = scene.cluster.weather
    weather.slow_seconds, weather.slow_until = SLOW_SECONDS, scene.clock.now() + AWAY_SECONDS
