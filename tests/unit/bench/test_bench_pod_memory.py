import pytest

from bench import pod_memory
from bench.pod_memory import POD, SANDBOX, Process

UID = "30341dc6-e2e9-4c23-bb9f-da8b2979270e"
HARNESS, SIDECAR, PAUSE = "a" * 64, "b" * 64, "c" * 64
NAMES = {HARNESS: "harness", SIDECAR: "egress-proxy"}


def write_cgroup(folder, size, cache=7000):
    """A cgroup of version 2 that holds so many bytes besides page cache."""
    folder.mkdir(parents=True)
    (folder / "memory.current").write_text(f"{size + cache}\n")
    (folder / "memory.stat").write_text(f"anon {size - 5}\nfile {cache + 5}\nshmem 5\nslab 1\n")


VERSIONS = {
    "version 2": (
        {"memory.current": "1000\n", "memory.stat": "anon 500\nfile 300\nshmem 100\n"},
        1000 - 300 + 100,
    ),
    "version 1": (
        {
            "memory.usage_in_bytes": "9999\n",
            "memory.kmem.usage_in_bytes": "40\n",
            "memory.stat": "rss 1\nshmem 2\ntotal_cache 800\ntotal_rss 500\ntotal_shmem 100\n",
        },
        500 + 100 + 40,
    ),
    "version 1 without tmpfs": (
        {"memory.kmem.usage_in_bytes": "0\n", "memory.stat": "total_cache 8\ntotal_rss 5\n"},
        5,
    ),
}


@pytest.mark.parametrize("case", VERSIONS)
def test_page_cache_is_left_out_and_tmpfs_is_not(tmp_path, case):
    files, want_bytes = VERSIONS[case]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert pod_memory.unreclaimable(tmp_path) == want_bytes


@pytest.mark.parametrize("above", ["memory/securebench-node", "securebench-node", "."])
@pytest.mark.parametrize("quality", ["burstable", "."])
def test_pods_are_found_in_both_versions(tmp_path, above, quality):
    root = tmp_path / above / "kubepods"
    place = root / quality / f"pod{UID}"
    place.mkdir(parents=True)
    (root / "memory.stat").touch()
    assert pod_memory.pod_cgroups(tmp_path) == {UID: place}


def write_process(proc, pid, place, comm, anonymous_kib, arguments=b""):
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cgroup").write_text(f"12:memory:{place}\n1:cpu:{place}\n")
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "cmdline").write_bytes(arguments)
    (folder / "smaps_rollup").write_text(
        f"1000-2000 ---p [rollup]\nRss: 999 kB\nPss:   {anonymous_kib + 3} kB\n"
        f"Pss_Anon:   {anonymous_kib} kB\nAnonymous: 777 kB\n"
    )


def test_processes_belong_to_their_containers(tmp_path):
    place = f"/node/kubepods/burstable/pod{UID}/{HARNESS}"
    write_process(tmp_path, 12, place, "supervise", 4)
    write_process(tmp_path, 13, place, "codex", 100)
    write_process(tmp_path, 14, "/node/system", "kubelet", 50)
    (tmp_path / "15").mkdir()  # ended while it was looked at
    found = pod_memory.processes(tmp_path)
    assert {key: sorted(each) for key, each in found.items()} == {
        HARNESS: [Process("codex", 100 * 1024), Process("supervise", 4 * 1024)]
    }


def test_shims_are_known_by_their_sandbox(tmp_path):
    words = (b"/bin/containerd-shim-runc-v2", b"-namespace", b"k8s.io", b"-id", PAUSE.encode())
    write_process(tmp_path, 12, "/", "containerd-shim", 8, b"\0".join((*words, b"-address\0")))
    write_process(tmp_path, 13, "/", "containerd", 8, b"\0".join((*words, b"-address\0")))
    assert pod_memory.shims(tmp_path) == {PAUSE: 11 * 1024}


def test_a_launch_takes_what_its_agents_processes_do_not(tmp_path):
    pod = tmp_path / f"pod{UID}"
    write_cgroup(pod, 2000)
    for container, size in ((HARNESS, 1200), (SIDECAR, 300), (PAUSE, 50)):
        write_cgroup(pod / container, size)
    running = {
        HARNESS: [Process("supervise", 90), Process("codex", 600), Process("sh", 200)],
        SIDECAR: [Process("supervise", 250)],
    }
    found = pod_memory.pod_memory(pod, NAMES, "harness", running, {PAUSE: 77, HARNESS: 1})
    assert found.containers == {"harness": 1200, "egress-proxy": 300, SANDBOX: 50, POD: 450}
    assert (found.agent, found.shim) == (800, 77)
    assert found.beside == 2000 - 800
