"""A bundle's images in the containerd of the node, as `restore.sh containerd` loads them."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from support.image_archives import built, offline, tool
from support.release import CommandError, call

pytestmark = pytest.mark.cluster

NAMESPACE = "sb-bundle"
SOCKET = Path(os.environ.get("SECUREBENCH_NODE_STATE", "/var/lib/securebench-node"))


def test_it_is_loaded_without_a_network_as_the_values_name_it(tmp_path: Path) -> None:
    socket = SOCKET / "containerd.sock"
    if not socket.exists():
        pytest.skip("the local cluster is kind, whose containerd is in a container")
    tool("crane")
    archive = Path(built(tmp_path / "cache").run("bundle.sh", PYTHON=sys.executable).strip())
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    bundle = tmp_path / archive.name.removesuffix(".tar.gz")
    place = {"CONTAINERD_ADDRESS": str(socket), "CONTAINERD_NAMESPACE": NAMESPACE}
    ctr = ("ctr", "--address", str(socket), "--namespace", NAMESPACE, "images")
    try:
        with pytest.raises(CommandError, match="CONTAINERD_ADDRESS names another socket"):
            offline(str(bundle / "restore.sh"), "containerd", CONTAINERD_ADDRESS="/nowhere.sock")
        offline(str(bundle / "restore.sh"), "containerd", **place)
        named = yaml.safe_load((bundle / "values.yaml").read_text(encoding="utf-8"))["image"]
        assert sorted(named.values()) == sorted(call(*ctr, "list", "--quiet").decode().split())
    finally:
        call(*ctr, "remove", "--sync", *call(*ctr, "list", "--quiet").decode().split())
        call("ctr", "--address", str(socket), "namespaces", "remove", NAMESPACE)
