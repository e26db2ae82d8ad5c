"""Listeners that write down who reached them, programs that try to, and policies that let them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from support.release import Raw, call
from support.waiting import KUBECTL_TIMEOUT
from threats.kit.batch import IMAGE

PORTS = (
    *(21, 22, 25, 53, 80, 110, 123, 143, 389, 443, 445, 636, 853, 993),
    *(1080, 3128, 5432, 6379, 8080, 8443),
)
"""Twenty ports; a listener has all of them, for TCP and for UDP."""
SERVICE_PORT = 8080

NO_PROBES = (
    '[JSONPatch{op: "replace", path: "/spec/containers/0/command/3", value:'
    " object.spec.containers[0].command[3].replace("
    "object.spec.containers[0].command[3].find('\"probes\":\\\\[[^\\\\]]*\\\\]'),"
    " '\"probes\":[]')}]"
)
"""The patch after which supervise starts the command whatever the network is like."""

_SERVER = """\
import json, selectors, socket, sys
from concurrent.futures import ThreadPoolExecutor
pool, choose = ThreadPoolExecutor(64), selectors.DefaultSelector()
def say(kind, port, data):
    hit = {"kind": kind, "port": port, "data": data.decode("latin-1")}
    sys.stdout.write(json.dumps(hit) + "\\n")
def serve(connection, port):
    connection.settimeout(2)
    try:
        data = connection.recv(4096)
        connection.sendall(data)
    except OSError:
        data = b""
    say("tcp", port, data)
    connection.close()
for port in json.loads(sys.argv[1]):
    tcp = socket.create_server(("", port), backlog=1024)
    udp = socket.socket(type=socket.SOCK_DGRAM)
    udp.bind(("", port))
    for each, kind in ((tcp, "tcp"), (udp, "udp")):
        choose.register(each, selectors.EVENT_READ, (kind, port))
open("/tmp/ready", "w").close()
while True:
    for key, _ in choose.select():
        kind, port = key.data
        if kind == "tcp":
            pool.submit(serve, key.fileobj.accept()[0], port)
        else:
            data, peer = key.fileobj.recvfrom(4096)
            key.fileobj.sendto(data, peer)
            say(kind, port, data)
"""

ROUTER = "router"
"""As the host of a target: the next hop of the Pod's own default route."""

_KNOCK = f"""\
import json, select, socket, time
def router():
    with open("/proc/net/route") as routes:
        for row in map(str.split, routes):
            if row[1] == "00000000":
                return socket.inet_ntoa(bytes.fromhex(row[2])[::-1])
def knock(targets, who, seconds):
    poll, waiting, reached = select.poll(), {{}}, []
    for name, kind, host, port in targets:
        host = router() if host == {ROUTER!r} else host
        each = socket.socket(type=socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        each.setblocking(False)
        try:
            each.connect_ex((host, port))
            if kind == "udp":
                each.send(who)
        except OSError:
            continue
        poll.register(each, select.POLLIN if kind == "udp" else select.POLLOUT)
        waiting[each.fileno()] = (name, kind, each)
    deadline, resend = time.monotonic() + seconds, time.monotonic() + 0.5
    while waiting and time.monotonic() < deadline:
        for number, _ in poll.poll(100):
            poll.unregister(number)
            name, kind, each = waiting.pop(number)
            try:
                if each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    continue
                each.send(who) if kind == "tcp" else each.recv(64)
                reached.append(name)
            except OSError:
                pass
        for _, kind, each in waiting.values() if time.monotonic() > resend else ():
            try:
                each.send(who) if kind == "udp" else None
            except OSError:
                pass
        resend += 0.5 * (time.monotonic() > resend)
    return sorted(reached)
"""


class Target(NamedTuple):
    """One address to knock at: ``kind`` is ``tcp`` or ``udp``."""

    name: str
    kind: str
    host: str
    port: int


def knocking(targets: Iterable[Target], who: str, seconds: float = 10) -> str:
    """Return a Python program that sends its name to all targets and prints whom it reached."""
    told = json.dumps([list(target) for target in targets])
    words = f"knock(json.loads({told!r}), {who.encode()!r}, {seconds})"
    return f"{_KNOCK}reached = {words}\nprint(json.dumps(reached))\n"


def as_check(program: str) -> str:
    """Return the same program as a checker's command."""
    return f"python3 - <<'END'\n{program}END\n"


@dataclass(frozen=True, slots=True)
class Listener:
    """A Pod that answers everyone and prints who came.

    Attributes:
        namespace: Where it is.
        name: Of the Pod.
        address: Of the Pod.
        service: Cluster address of its Service.
        node: Address of its node.
        node_port: Of its Service.
    """

    namespace: str
    name: str
    address: str
    service: str
    node: str
    node_port: int

    def ports(self) -> list[Target]:
        """Return every port of the Pod."""
        return [
            Target(f"{kind}/{port}", kind, self.address, port)
            for kind in ("tcp", "udp")
            for port in PORTS
        ]

    def ways(self) -> list[Target]:
        """Return one port of the Pod, the Service and the node."""
        return [
            Target(f"{self.namespace}/pod", "tcp", self.address, SERVICE_PORT),
            Target(f"{self.namespace}/service", "tcp", self.service, SERVICE_PORT),
            Target(f"{self.namespace}/node-port", "tcp", self.node, self.node_port),
        ]

    def hits(self, who: str) -> list[Raw]:
        """Return what came from somebody; what came without a name is everybody's."""
        lines = call("kubectl", "-n", self.namespace, "logs", self.name).decode().splitlines()
        seen = [json.loads(line) for line in lines]
        return [hit for hit in seen if who in hit["data"] or not hit["data"]]


def listen(namespaces: Sequence[str], name: str = "listener") -> list[Listener]:
    """Start a listener in each namespace and wait until all of them listen."""
    for namespace in namespaces:
        _create(namespace, _pod(name), _service(name, {"type": "NodePort"}))
        _create(namespace, _service(f"{name}-headless", {"clusterIP": "None"}, name))
    return [_ready(namespace, name) for namespace in namespaces]


def open_policy(run: str, *roles: str, name: str = "open", ports: Sequence[int] = ()) -> Raw:
    """Return the policy that lets the Pods of a run out.

    Args:
        run: Name of the run.
        roles: Of its Pods; none: all of them.
        name: Distinguishes several policies of a run.
        ports: TCP ports that they may reach, wherever; none: everything.
    """
    chosen: Raw = {"matchLabels": {"securebench.dev/run": run}}
    if roles:
        values = {"key": "securebench.dev/role", "operator": "In", "values": list(roles)}
        chosen["matchExpressions"] = [values]
    way: Raw = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]} if ports else {}
    spec = {"podSelector": chosen, "policyTypes": ["Egress"], "egress": [way]}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return {**kind, "metadata": {"name": f"{name}-{run}"}, "spec": spec}


def _pod(name: str) -> Raw:
    container = {
        "name": "listener",
        "image": IMAGE,
        "command": ["python3", "-uc", _SERVER, json.dumps(PORTS)],
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _service(name: str, more: Raw, app: str = "") -> Raw:
    ports = [{"port": SERVICE_PORT, "protocol": "TCP"}]
    spec = {"selector": {"app": app or name}, "ports": ports, **more}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _create(namespace: str, *items: Raw) -> None:
    body = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    call("kubectl", "-n", namespace, "create", "-f", "-", stdin=json.dumps(body).encode())


def _ready(namespace: str, name: str) -> Listener:
    words = ("kubectl", "-n", namespace)
    call(*words, "wait", "--for=condition=Ready", f"pod/{name}", KUBECTL_TIMEOUT)
    pod = json.loads(call(*words, "get", "pod", name, "-o", "json"))
    service = json.loads(call(*words, "get", "service", name, "-o", "json"))
    return Listener(
        namespace,
        name,
        pod["status"]["podIP"],
        service["spec"]["clusterIP"],
        pod["status"]["hostIP"],
        service["spec"]["ports"][0]["nodePort"],
    )
