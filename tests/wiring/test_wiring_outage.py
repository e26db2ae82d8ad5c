"""What kopf does while the API server refuses or is away: it goes on, and delivers afterwards."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from support.build import run_body

RUNS = "/apis/securebench.dev/v1alpha1/namespaces/bench/benchmarkruns"
KINDS = {
    "v1": ("namespaces", "Namespace", "namespace"),
    "apiextensions.k8s.io/v1": (
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "customresourcedefinition",
    ),
    "securebench.dev/v1alpha1": ("benchmarkruns", "BenchmarkRun", "benchmarkrun"),
}
"""What kopf looks for, by API version: plural, kind and singular."""


def kinds(version):
    """Return the list of the kinds of a version."""
    plural, kind, singular = KINDS[version]
    words = {"name": plural, "singularName": singular, "kind": kind}
    rest = {"namespaced": True, "verbs": ["get", "list", "watch"]}
    return {"kind": "APIResourceList", "groupVersion": version, "resources": [words | rest]}


def group(version):
    name, _, last = version.partition("/")
    one = {"groupVersion": version, "version": last}
    return {"name": name, "versions": [one], "preferredVersion": one}


class Server:
    """An API server with one kind, which refuses as often as it is told."""

    def __init__(self) -> None:
        self.refusals: list[int] = []
        self.refused = 0
        self.bodies = []
        application = web.Application()
        groups = [group(version) for version in KINDS if "/" in version]
        application.router.add_get("/apis", self.answer({"groups": groups}))
        application.router.add_get("/api", self.answer({"versions": ["v1"]}))
        for version in KINDS:
            place = f"/apis/{version}" if "/" in version else f"/api/{version}"
            application.router.add_get(place, self.answer(kinds(version)))
        application.router.add_get(RUNS, self.runs)
        self.runner = web.AppRunner(application, shutdown_timeout=0)

    def answer(self, body):
        async def answer(_):
            return web.json_response(body)

        return answer

    async def runs(self, request):
        if self.refusals:
            self.refused += 1
            return web.json_response({"kind": "Status"}, status=self.refusals.pop(0))
        if "watch" not in request.query:
            listing = {"metadata": {"resourceVersion": "1"}, "items": self.bodies}
            return web.json_response(listing)
        stream = web.StreamResponse()
        await stream.prepare(request)
        await asyncio.sleep(1)
        return stream

    @asynccontextmanager
    async def serving(self):
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        finally:
            await self.runner.cleanup()


def kubeconfig(folder, server):
    path = folder / "kubeconfig"
    named = {"name": "it"}
    path.write_text(
        json.dumps(
            {
                "current-context": "it",
                "contexts": [named | {"context": {"cluster": "it", "user": "it"}}],
                "clusters": [named | {"cluster": {"server": server}}],
                "users": [named | {"user": {"token": "the same one every time"}}],
            }
        )
    )
    return str(path)


SCRIPT = """
import asyncio, sys
from pathlib import Path
import kopf
from securebench.controller import handlers
from support.build import FakeClock, context_of, settings_of
from support.fake_cluster import FakeCluster

for name in ("RETRY_SECONDS", "RETRY_LIMIT_SECONDS", "LOGIN_SECONDS"):
    setattr(handlers, name, 0.01)

async def made(*_):
    return context_of(FakeCluster(), FakeClock(), Path(sys.argv[1]))

async def main():
    stop = asyncio.Event()
    handlers.make_context = made
    handlers.Supervisor.observe = lambda self, kind, body: stop.set()
    registry = handlers.Operator(settings_of(Path(sys.argv[1])), None, None).registry()
    await kopf.operator(
        registry=registry, standalone=True, namespaces=["bench"], clusterwide=False, stop_flag=stop
    )
    print("arrived" if stop.is_set() else "ended")

asyncio.run(main())
"""


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_the_operator_goes_on_after_refusals_of_the_api_server(status, tmp_path):
    """Twelve are more than kopf puts up with by itself; the token stays the same."""
    server = Server()
    server.refusals = [status] * 12
    body = run_body()
    body["metadata"] |= {"uid": "u", "generation": 1, "namespace": "bench"}
    server.bodies = [body]
    async with server.serving() as url:
        environment = {"KUBECONFIG": kubeconfig(tmp_path, url), "PYTHONPATH": ":".join(sys.path)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SCRIPT, str(tmp_path), env=environment, stdout=PIPE, stderr=PIPE
        )
        try:
            async with asyncio.timeout(15):
                said, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert said.split() == [b"arrived"], errors.decode()
    assert server.refused == 12
