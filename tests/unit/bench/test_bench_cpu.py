import os

import pytest

from bench import cpu
from bench.cpu import CLIENT, HERTZ, MACHINE, OPERATOR, PODS, REST, SHIMS, Process, Reading

NAMES = {
    "plain": ("kubelet", "kubelet"),
    "blank": ("kworker/0:1 (x)", "kworker/0:1 (x)"),
    "parenthesis": ("a) S 9 (b", "a) S 9 (b"),
}


def stat(name, parent=1, own=(2, 1), children=(4, 3)):
    times = [int(each * HERTZ) for each in (*own, *children)]
    return f"7 ({name}) S {parent} 7 7 0 -1 4194560 100 0 0 0 {' '.join(map(str, times))} 20 0\n"


@pytest.mark.parametrize("case", NAMES)
def test_a_process_is_read_whatever_its_name_holds(case):
    name, want_name = NAMES[case]
    assert cpu.process(stat(name, parent=42)) == Process(want_name, 42, 3.0, 7.0)


def test_the_machine_is_busy_without_idle_wait_steal_and_guests():
    fields = [10, 20, 30, 9999, 8888, 40, 50, 777, 666, 555]
    text = f"cpu  {' '.join(str(each * HERTZ) for each in fields)}\ncpu0 1 2\n"
    assert cpu.machine_seconds(text) == 10 + 20 + 30 + 40 + 50


COUNTERS = {
    "version 1": ("cpuacct.usage", "2500000000\n", 2.5),
    "version 2": ("cpu.stat", "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n", 2.5),
    "version 2 with more": ("cpu.stat", "core 1\nusage_usec 1000000\n", 1.0),
}


@pytest.mark.parametrize("case", COUNTERS)
def test_a_cgroup_is_read_in_both_versions(tmp_path, case):
    name, text, want_seconds = COUNTERS[case]
    (tmp_path / name).write_text(text)
    assert cpu.cgroup_seconds(tmp_path / name) == want_seconds


PLACES = {
    "node of ours, version 1": "cpuacct/securebench-node/kubepods/cpuacct.usage",
    "node of ours, version 2": "securebench-node/kubepods/cpu.stat",
    "systemd": "kubelet.slice/kubelet-kubepods.slice/kubepods.slice/cpu.stat",
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_the_cgroup_of_all_pods_is_found(tmp_path, place):
    below = tmp_path / place
    others = {
        "cpu/securebench-node/kubepods/cpu.stat": "nr_periods 0\nthrottled_time 0\n",
        "unified/securebench-node/kubepods/cgroup.procs": "",
        str((below.parent / "burstable" / below.name).relative_to(tmp_path)): "usage_usec 1\n",
        place: "usage_usec 1\n",
    }
    for each, text in others.items():
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_text(text)
    assert cpu.pods_counter(tmp_path) == below


def test_without_a_cgroup_of_pods_nothing_is_measured(tmp_path):
    with pytest.raises(SystemExit, match="measure on the machine of the node"):
        cpu.pods_counter(tmp_path)


def test_processes_are_read_from_their_folders(tmp_path):
    (tmp_path / "stat").write_text("cpu " + " ".join(str(HERTZ) for _ in range(10)) + "\n")
    (tmp_path / "12").mkdir()
    (tmp_path / "12/stat").write_text(stat("etcd"))
    (tmp_path / "13").mkdir()  # ended while it was looked at
    (tmp_path / "counter").mkdir()
    (tmp_path / "counter/cpuacct.usage").write_text("1000000000")
    found = cpu.read(tmp_path / "counter/cpuacct.usage", tmp_path)
    assert found == Reading(5.0, 1.0, {12: Process("etcd", 1, 3.0, 7.0)})


def reading(machine, pods, **processes):
    return Reading(machine, pods, {int(key[1:]): value for key, value in processes.items()})


def test_seconds_belong_to_who_spent_them():
    before = reading(
        100.0,
        10.0,
        p1=Process("init", 0, 1.0, 5.0),
        p2=Process("kubelet", 1, 4.0, 1.0),
        p3=Process("containerd-shim", 1, 1.0, 0.0),
    )
    after = reading(
        120.0,
        13.0,
        p1=Process("init", 0, 1.0, 12.0),
        p2=Process("kubelet", 1, 6.0, 1.5),
        p3=Process("containerd-shim", 1, 1.25, 0.0),
        p9=Process("kubelet", 1, 99.0, 99.0),
    )
    found = cpu.spent(before, after, operator=1.0)
    # Of the 7 seconds that init took over, 2 are of ended Pods: 3 less the operator's own.
    want = {
        MACHINE: 20.0,
        OPERATOR: 1.0,
        PODS: 3.0,
        "kubelet": 2.5,
        SHIMS: 0.25 + 5.0,
        REST: 20.0 - 3.0 - 2.5 - 5.25,
    }
    assert found == pytest.approx(want)


def test_the_measuring_itself_has_a_line_of_its_own():
    me = f"p{os.getpid()}"
    before = reading(0.0, 0.0, **{me: Process("python", 1, 1.0, 0.0)})
    after = reading(5.0, 0.0, **{me: Process("python", 1, 3.0, 0.5)})
    assert cpu.spent(before, after)[CLIENT] == 2.5
    assert cpu.spent(before, after)[REST] == 2.5
