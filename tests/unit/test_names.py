import pytest

from securebench.names import kubernetes_name, label_value, logical_name

LOGICAL = {
    "Lab-3": "Lab-3",
    "geo:7": "geo_7-874307b9",
    "demo/copy file": "demo_copy_file-966e74a4",
    "a__b.": "a__b-067aa695",
    "_a": "a-",
    "///": "task-",
    "ü": "task-",
}


@pytest.mark.parametrize("task_id", LOGICAL)
def test_logical_name(task_id):
    want = LOGICAL[task_id]
    name = logical_name(task_id)
    assert name.startswith(want)
    assert len(name) == (len(want) + 8 if want.endswith("-") else len(want))


def test_logical_names_of_different_ids_differ():
    assert logical_name("a b") != logical_name("a/b")


LABELS = {
    "my-run": "my-run",
    "a b/c": "a_b_c",
    "-x-": "x",
    "": "",
    "a" * 70: "a" * 63,
    "a" * 62 + "-b": "a" * 62,
}


@pytest.mark.parametrize("text", LABELS)
def test_label_value(text):
    assert label_value(text) == LABELS[text]


KEPT = ["a", "my-run", "0", "a" * 63]


@pytest.mark.parametrize("text", KEPT)
def test_kubernetes_name_keeps_dns_labels(text):
    assert kubernetes_name(text) == text


CHANGED = {
    "My Run": "my-run-",
    "a_b": "a-b-",
    "-a": "a-",
    "": "x-",
    "\ud800": "x-",
    "a" * 64: "a" * 54 + "-",
    "a\n": "a-",
}


@pytest.mark.parametrize("text", CHANGED)
def test_kubernetes_name_derives_with_a_digest(text):
    name = kubernetes_name(text)
    assert name.startswith(CHANGED[text])
    assert len(name) == len(CHANGED[text]) + 8


def test_kubernetes_name_obeys_a_limit():
    assert len(kubernetes_name("a" * 40, limit=30)) == 30
