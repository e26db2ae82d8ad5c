"""What the kubelet makes of a sub-path that is missing: the mode that supervise relies on."""

import json

from contract.conftest import kubectl
from support.waiting import until

IMAGE = "python:3.11-slim"
LOOK = "stat -c %a:%u /a /a/b /deep /whole; touch /a/x /a/b/x /whole/x; cat /dev/null"


def pod(user):
    beside = [
        {"name": "beside", "mountPath": place, "subPath": path}
        for place, path in (("/a", "0"), ("/a/b", "1"), ("/deep", "2/3"))
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "folders"},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", LOOK],
                    "securityContext": {"runAsUser": user, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [*beside, {"name": "whole", "mountPath": "/whole"}],
                }
            ],
            "volumes": [{"name": name, "emptyDir": {}} for name in ("beside", "whole")],
        },
    }


def test_missing_sub_paths_of_an_empty_dir_are_open_to_every_user(namespaces):
    name = namespaces()
    kubectl("-n", name, "create", "-f", "-", manifest=pod(65531))
    until(lambda: status(name)["phase"] in ("Succeeded", "Failed"), "the Pod does not end", 60)
    said = kubectl("-n", name, "logs", "folders")
    assert said.split() == ["777:0"] * 4, said
    assert status(name)["phase"] == "Succeeded"


def status(namespace):
    return json.loads(kubectl("-n", namespace, "get", "pod", "folders", "-o", "json"))["status"]
