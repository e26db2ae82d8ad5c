import os
from pathlib import Path

import helper

WORKSPACE = Path(os.environ["SECUREBENCH_WORKSPACE"])


def test_surroundings():
    assert Path.cwd() == WORKSPACE == Path("/app")
    assert os.environ["SECUREBENCH_EVALUATOR"] == "/opt/securebench/evaluator"
    assert os.environ["TEST_DIR"] == str(Path(__file__).parent)
    assert not os.access(__file__, os.W_OK) or not _can_write(Path(__file__).parent)
    assert (WORKSPACE / "securebench/evaluation_inputs/answer/helper.py").is_file()


def test_answer():
    assert (WORKSPACE / "answer.txt").read_text() == helper.WANT


def _can_write(folder):
    try:
        (folder / "probe").touch()
    except OSError:
        return False
    return True
