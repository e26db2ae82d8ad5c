"""The client without a network: a stub stands for the official ApiClient."""

import json
import os
from collections import deque
from types import SimpleNamespace

import aiohttp
import pytest

from securebench.cluster.client import ApiCluster, connect, default_namespace
from securebench.cluster.port import AlreadyExists, ObjectKind, QuotaExceeded, WatchExpired
from securebench.errors import ConfigError, PermanentClusterError, TransientClusterError

PODS = "/api/v1/namespaces/sb/pods"
FULL = (403, {"message": 'pods "a" is forbidden: exceeded quota: few, requested: pods=1'})
GONE = (404, {"reason": "NotFound"})


class Content:
    def __init__(self, body):
        self.body = body

    async def iter_any(self):
        for start in range(0, len(self.body), 7):
            yield self.body[start : start + 7]


class Response:
    def __init__(self, status, body, headers=()):
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.headers = dict(headers)
        self.content = Content(self.body)
        self.closed = False

    async def read(self):
        return self.body

    def close(self):
        self.closed = True

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        self.close()


class Api:
    """Gives the prepared answers, in order, and keeps the requests."""

    def __init__(self, *answers):
        self.answers = deque(answers)
        self.requests = []
        self.responses = []

    async def param_serialize(self, method, path, **parts):
        return method, path, parts

    async def call_api(self, method, path, parts, *, _request_timeout):
        self.requests.append(
            SimpleNamespace(
                method=method,
                path=path,
                query=dict(parts["query_params"]),
                headers=parts["header_params"],
                body=parts["body"],
                seconds=_request_timeout.total,
            )
        )
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        self.responses.append(Response(*answer))
        return SimpleNamespace(response=self.responses[-1])


def cluster_of(*answers):
    api = Api(*answers)
    return ApiCluster(api, "sb"), api


async def test_a_question_goes_to_any_path_with_its_body():
    cluster, api = cluster_of((201, {"status": {"allowed": True}}), (403, {"message": "no"}))
    answer = await cluster.ask("POST", "/apis/x/reviews", {"kind": "Review"})
    assert answer == {"status": {"allowed": True}}
    (request,) = api.requests
    assert (request.method, request.path) == ("POST", "/apis/x/reviews")
    assert request.body == {"kind": "Review"}
    with pytest.raises(PermanentClusterError):
        await cluster.ask("GET", "/version")


async def test_signing_keys_are_asked_for_without_a_type():
    keys = b'{"keys":[]}'
    cluster, api = cluster_of((200, keys))
    assert await cluster.signing_keys() == keys
    (request,) = api.requests
    assert (request.method, request.path) == ("GET", "/openid/v1/jwks")
    assert request.headers["Accept"] == "*/*"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((403, {"reason": "Forbidden"}), PermanentClusterError),
        ((503, {}), TransientClusterError),
        ((200, b"<html>"), TransientClusterError),
    ],
)
async def test_signing_keys_that_are_refused(answer, error):
    with pytest.raises(error):
        await cluster_of(answer)[0].signing_keys()


def page(*names, version="7", **metadata):
    items = [{"metadata": {"name": name}} for name in names]
    return 200, {"metadata": {"resourceVersion": version, **metadata}, "items": items}


async def test_paths_of_all_kinds():
    want = {
        ObjectKind.POD: PODS,
        ObjectKind.SERVICE: "/api/v1/namespaces/sb/services",
        ObjectKind.NETWORK_POLICY: "/apis/networking.k8s.io/v1/namespaces/sb/networkpolicies",
        ObjectKind.CONFIG_MAP: "/api/v1/namespaces/sb/configmaps",
        ObjectKind.SECRET: "/api/v1/namespaces/sb/secrets",
        ObjectKind.BENCHMARK_RUN: "/apis/securebench.dev/v1alpha1/namespaces/sb/benchmarkruns",
        ObjectKind.BENCHMARK_SUITE: "/apis/securebench.dev/v1alpha1/namespaces/sb/benchmarksuites",
        ObjectKind.EVENT: "/apis/events.k8s.io/v1/namespaces/sb/events",
        ObjectKind.LEASE: "/apis/coordination.k8s.io/v1/namespaces/sb/leases",
    }
    cluster, api = cluster_of(*[GONE for _ in ObjectKind])

    for kind in ObjectKind:
        assert await cluster.get(kind, "a") is None

    assert [request.path for request in api.requests] == [f"{want[kind]}/a" for kind in ObjectKind]


async def test_a_list_is_read_page_by_page():
    cluster, api = cluster_of(page("a", "b", **{"continue": "next"}), page("c"))

    listing = await cluster.list(ObjectKind.POD, "app=x")

    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b", "c"]
    assert listing.resource_version == "7"
    assert api.requests[0].query == {"labelSelector": "app=x", "limit": "500"}
    assert api.requests[1].query == {"labelSelector": "app=x", "limit": "500", "continue": "next"}
    assert cluster.requests == {("list", ObjectKind.POD): 2}


async def test_a_snapshot_that_went_away_is_read_again_in_one_piece():
    expired = (410, {"reason": "Expired", "message": "too old"})
    cluster, api = cluster_of(page("a", **{"continue": "x"}), expired, page("a", "b", version="9"))

    listing = await cluster.list(ObjectKind.POD, "")

    assert (len(listing.items), listing.resource_version) == (2, "9")
    assert api.requests[2].query == {}


async def test_a_list_without_items():
    cluster, _ = cluster_of((200, {"metadata": {"resourceVersion": "7"}, "items": None}))

    assert await cluster.list(ObjectKind.POD, "") == ((), "7")


async def test_a_watch_tells_events_until_the_server_ends_it():
    lines = b'{"type":"ADDED","object":{"a":1}}\n{"type":"BOOKMARK","object":{}}\n'
    cluster, api = cluster_of((200, lines))

    events = [event async for event in cluster.watch(ObjectKind.POD, "app=x", "5")]

    assert events == [("ADDED", {"a": 1}), ("BOOKMARK", {})]
    request = api.requests[0]
    assert request.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "300",
        "resourceVersion": "5",
        "labelSelector": "app=x",
    }
    assert request.seconds == 330
    assert api.responses[0].closed


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        ((200, b'{"type":"ERROR","object":{"code":410,"message":"too old"}}\n'), WatchExpired),
        ((410, {"reason": "Expired"}), WatchExpired),
        ((403, {"message": "cannot watch"}), PermanentClusterError),
        ((503, b""), TransientClusterError),
        (TimeoutError(), TransientClusterError),
        (aiohttp.ServerDisconnectedError(), TransientClusterError),
    ],
)
async def test_watches_that_fail(answer, want):
    cluster, api = cluster_of(answer)

    with pytest.raises(want):
        await anext(cluster.watch(ObjectKind.POD, "", "5"))

    assert all(response.closed for response in api.responses)


async def test_a_create():
    cluster, api = cluster_of((201, {"metadata": {"name": "a", "uid": "u"}}))
    manifest = {"metadata": {"name": "a"}}

    created = await cluster.create(ObjectKind.POD, manifest)

    assert created["metadata"]["uid"] == "u"
    request = api.requests[0]
    assert (request.method, request.path, request.body) == ("POST", PODS, manifest)
    assert request.headers == {"Accept": "application/json", "Content-Type": "application/json"}
    assert request.seconds == 30


async def test_a_quota_is_full_because_of_the_very_object():
    cluster, _ = cluster_of(FULL, (200, {"metadata": {"name": "a"}}))

    with pytest.raises(AlreadyExists) as caught:
        await cluster.create(ObjectKind.POD, {"metadata": {"name": "a"}})

    assert caught.value.name == "a"


async def test_a_quota_is_full_of_others():
    cluster, _ = cluster_of(FULL, GONE)

    with pytest.raises(QuotaExceeded):
        await cluster.create(ObjectKind.POD, {"metadata": {"name": "a"}})


async def test_the_header_retry_after_arrives():
    cluster, _ = cluster_of((429, {}, {"Retry-After": "4"}))

    with pytest.raises(TransientClusterError) as caught:
        await cluster.get(ObjectKind.POD, "a")

    assert caught.value.retry_after_seconds == 4


@pytest.mark.parametrize(
    ("uid", "grace", "want"),
    [
        (None, None, {}),
        ("u", None, {"preconditions": {"uid": "u"}}),
        (None, 0, {"gracePeriodSeconds": 0}),
        ("u", 1, {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 1}),
    ],
)
async def test_delete_options(uid, grace, want):
    cluster, api = cluster_of((200, {}))

    assert await cluster.delete(ObjectKind.POD, "a", uid=uid, grace_seconds=grace)

    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert api.requests[0].body == options | want


async def test_a_deletion_of_many_names_its_moment():
    cluster, api = cluster_of((200, {"kind": "PartialObjectMetadataList"}), (410, {}))

    await cluster.delete_collection(ObjectKind.POD, "app=x", "metadata.name!=a", "77")

    (request,) = api.requests
    assert request.method == "DELETE"
    assert request.path.endswith("/pods")
    assert request.query == {
        "labelSelector": "app=x",
        "fieldSelector": "metadata.name!=a",
        "resourceVersion": "77",
        "resourceVersionMatch": "Exact",
    }
    assert cluster.requests["delete_collection", ObjectKind.POD] == 1
    with pytest.raises(WatchExpired):
        await cluster.delete_collection(ObjectKind.POD, "app=x", "", "77")


@pytest.mark.parametrize(
    "answer",
    [GONE, (409, {"reason": "Conflict", "message": "the UID in the precondition (1) does not"})],
)
async def test_deletions_of_what_is_not_there(answer):
    cluster, _ = cluster_of(answer)

    assert not await cluster.delete(ObjectKind.POD, "a", uid="u", grace_seconds=None)


async def test_a_deletion_that_lost_a_race_may_be_repeated():
    cluster, _ = cluster_of((409, {"reason": "Conflict", "message": "has been modified"}))

    with pytest.raises(TransientClusterError):
        await cluster.delete(ObjectKind.POD, "a", uid=None, grace_seconds=None)


async def test_a_status_patch():
    cluster, api = cluster_of((200, {}), GONE, (422, {}))
    body = {"status": {"a": None}}

    assert await cluster.patch_status(ObjectKind.POD, "a", body) == {}
    assert await cluster.patch_status(ObjectKind.POD, "a", body) is None
    with pytest.raises(PermanentClusterError):
        await cluster.patch_status(ObjectKind.POD, "a", body)

    request = api.requests[0]
    assert (request.method, request.path, request.body) == ("PATCH", f"{PODS}/a/status", body)
    assert request.headers["Content-Type"] == "application/merge-patch+json"


async def test_a_patch_of_an_object():
    replaced = 422, {"message": 'metadata.uid: Invalid value: "u": field is immutable'}
    cluster, api = cluster_of((200, {}), GONE, replaced)

    assert await cluster.patch(ObjectKind.SECRET, "a", {"metadata": {}})
    assert not await cluster.patch(ObjectKind.SECRET, "a", {"metadata": {}})
    assert not await cluster.patch(ObjectKind.SECRET, "a", {"metadata": {"uid": "u"}})

    request = api.requests[0]
    assert request.path == "/api/v1/namespaces/sb/secrets/a"
    assert (request.method, request.body) == ("PATCH", {"metadata": {}})


class Sessions:
    """The REST client of the official ApiClient: makes its session late."""

    def __init__(self, answer):
        self.pool_manager = None
        self.answer = answer
        self.made = 0
        self.calls = []

    def _create_pool_manager(self):
        self.made += 1
        return self

    async def ws_connect(self, url, **options):
        self.calls.append((url, options))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def websocket_cluster(answer):
    cluster, api = cluster_of()
    api.rest_client = Sessions(answer)
    api.configuration = SimpleNamespace(
        proxy="http://proxy:3128", proxy_headers=None, tls_server_name="api.example"
    )

    async def param_serialize(method, path, *, query_params, auth_settings):
        assert auth_settings == ["BearerToken"]
        return method, f"https://api{path}?{query_params}", {"authorization": "Bearer t"}, None

    api.param_serialize = param_serialize
    return cluster, api.rest_client


async def test_a_websocket_has_the_credentials_and_is_closed():
    socket = Response(101, {})
    cluster, sessions = websocket_cluster(socket)

    for _ in range(2):
        async with cluster.websocket("pods/a/exec", [("command", "ls")], "v5") as opened:
            assert opened is socket

    assert socket.closed
    assert sessions.made == 1
    url, options = sessions.calls[0]
    assert url == f"https://api{PODS}/a/exec?[('command', 'ls')]"
    assert options["headers"] == {"authorization": "Bearer t"}
    assert options["protocols"] == ["v5"]
    assert (options["proxy"], options["server_hostname"]) == ("http://proxy:3128", "api.example")


def handshake_error(status):
    return aiohttp.WSServerHandshakeError(SimpleNamespace(real_url="u"), (), status=status)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (handshake_error(403), PermanentClusterError),
        (handshake_error(503), TransientClusterError),
        (TimeoutError(), TransientClusterError),
        (aiohttp.ClientConnectionError(), TransientClusterError),
    ],
    ids=["refused", "busy", "no answer", "no connection"],
)
async def test_websockets_that_do_not_open(answer, want):
    cluster, _ = websocket_cluster(answer)

    with pytest.raises(want, match="pods/a/exec"):
        async with cluster.websocket("pods/a/exec", [], "v5"):
            pytest.fail("there is no websocket")


@pytest.mark.parametrize(
    "trouble", [TimeoutError(), aiohttp.ClientPayloadError(), ConnectionResetError(), OSError()]
)
async def test_troubles_of_the_connection_are_passing(trouble):
    cluster, _ = cluster_of(trouble)

    with pytest.raises(TransientClusterError) as caught:
        await cluster.get(ObjectKind.POD, "a")

    assert f"GET {PODS}/a" in caught.value.reason


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "one",
    "clusters": [{"name": "c", "cluster": {"server": "https://server.example:6443"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        {"name": "two", "context": {"cluster": "c", "user": "u"}},
    ],
}


@pytest.fixture
def kubeconfig(tmp_path, monkeypatch):
    path = tmp_path / "config"
    path.write_text(json.dumps(KUBECONFIG), encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}{os.pathsep}{path}")
    return path


@pytest.mark.parametrize(("context", "want"), [(None, "team"), ("one", "team"), ("two", "default")])
def test_the_namespace_of_a_context(kubeconfig, context, want):
    assert kubeconfig.is_file()
    assert default_namespace(context) == want


def test_a_context_that_is_not_there(kubeconfig):
    assert kubeconfig.is_file()
    with pytest.raises(ConfigError, match="no context 'three'"):
        default_namespace("three")


async def test_the_kubeconfig_names_the_server(kubeconfig):
    before = kubeconfig.read_text(encoding="utf-8")

    async with connect("sb", context="two") as cluster:
        server = cluster.server

    assert cluster.namespace == "sb"
    assert server == "https://server.example:6443"
    assert kubeconfig.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("broken", ["three", "two"])
async def test_an_unusable_kubeconfig(kubeconfig, broken):
    if broken == "two":
        kubeconfig.write_text(json.dumps({**KUBECONFIG, "clusters": []}), encoding="utf-8")
    with pytest.raises(ConfigError, match="kubeconfig cannot be used"):
        async with connect("sb", context=broken):
            pass


async def test_neither_a_pod_nor_a_kubeconfig(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(ConfigError, match="no cluster"):
        async with connect("sb"):
            pass


@pytest.mark.parametrize(
    ("environment", "want"),
    [({}, "https://10.0.0.1:443"), ({"KUBECONFIG": "x"}, "https://server.example:6443")],
)
async def test_a_service_account_unless_a_kubeconfig_is_named(
    kubeconfig, monkeypatch, environment, want
):
    def load(configuration):
        configuration.host = "https://10.0.0.1:443"

    monkeypatch.setattr("securebench.cluster.client.load_incluster_config", load)
    if not environment:
        monkeypatch.delenv("KUBECONFIG")
    assert kubeconfig.is_file()

    async with connect("sb") as cluster:
        assert cluster.server == want


async def test_watches_take_no_connection_of_the_other_requests(kubeconfig):
    assert kubeconfig.is_file()
    async with connect("sb", context="two") as cluster:
        calls, watches = cluster._api.configuration, cluster._watches.configuration
    assert watches.host == calls.host
    assert watches.connection_pool_maxsize == 0
    assert calls.connection_pool_maxsize == 32


async def test_a_lease_does_not_wait_for_the_other_requests():
    api, watches = Api((200, {})), Api((200, {}), (200, {}))
    cluster = ApiCluster(api, "sb", watches)
    await cluster.get(ObjectKind.LEASE, "leader")
    await cluster.replace(ObjectKind.LEASE, {"metadata": {"name": "leader"}})
    await cluster.get(ObjectKind.POD, "a")
    paths = [[request.path.split("/")[-2] for request in each.requests] for each in (api, watches)]
    assert paths == [["pods"], ["leases", "leases"]]


async def test_a_watch_goes_through_its_own_client():
    api, watches = Api((200, {"items": [], "metadata": {}})), Api((200, b""))
    cluster = ApiCluster(api, "sb", watches)
    await cluster.list(ObjectKind.POD, "")
    assert [event async for event in cluster.watch(ObjectKind.POD, "", "1")] == []
    assert (len(api.answers), len(watches.answers)) == (0, 0)


async def test_the_caller_is_who_the_server_says():
    cluster, api = cluster_of((201, {"status": {"userInfo": {"username": "ada"}}}))
    assert await cluster.user_name() == "ada"
    (request,) = api.requests
    assert request.path == "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert request.body["kind"] == "SelfSubjectReview"
