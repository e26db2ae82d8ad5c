"""The candidate in a text: the whole of it, or its one fenced block."""

import pytest

from securebench.grading.code.fences import DEPTH, candidate_in
from support.code_pair import judge
from unit.grading.code.test_shared import SECRET, ended

CODE = "def f():\n    return 42\n"
OTHER = "def f():\n    return 7\n"
OPEN = f"```python\n{CODE}"
MARKED = f"{OPEN}```\n"


def indented(text, first, rest=None):
    """Put ``first`` before the first line and ``rest`` before each other line that is not blank."""
    rest = " " * len(first) if rest is None else rest
    lines = text.splitlines(keepends=True)
    return "".join(
        [first + lines[0], *(rest + line if line.strip() else line for line in lines[1:])]
    )


CHOSEN = {
    "no mark": f"```\n{CODE}```\n",
    "python": MARKED,
    "Python3 and words behind it": f"``` Python3 title=a.py\n{CODE}```\n",
    "py, a name behind it": f"```py:solution.py\n{CODE}```",
    "a mark in braces": f"``` {{.python .numberLines}}\n{CODE}```\n",
    "a mark of another language, alone": f"```text\n{CODE}```\n",
    "prose around it": f"Here is *it*:\n\n{MARKED}\nDon't run `f`!\n",
    "prose without blank lines": f"Here is it:\n{MARKED}That is it.\n",
    "tildes": f"It's this.\n~~~python\n{CODE}~~~\n",
    "tildes and a mark with backticks": f"~~~ python `x`\n{CODE}~~~\n",
    "long fences": f"`````python\n{CODE}`````\n",
    "a longer closing fence": f"```python\n{CODE}``````   \n",
    "blanks behind the fences": f"```python  \t\n{CODE}``` \t \n",
    "shorter fences and tildes inside": f'````\n{CODE}x = """\n```\n~~~\n"""\n````\n',
    "no closing fence": f"This is it:\n```python\n{CODE}",
    "a closing fence that is none": f'This is it:\n```python\n{CODE}"""\n    ```\n"""\n',
    "CRLF": f"This is it:\n{MARKED}".replace("\n", "\r\n"),
    "CR": f"This is it:\n{MARKED}".replace("\n", "\r"),
    "a byte order mark": f"\ufeff{MARKED}",
    "one blank before it": indented(MARKED, " "),
    "three blanks before it": indented(MARKED, "   "),
    "three blanks before its fences alone": f"   ```\n{CODE}   ```\n",
    "two blanks before its fences, code by two": "It's:\n  ```\ndef f():\n  return 42\n  ```\n",
    "a closing fence further in": f"```\n{CODE}   ```\n",
    "in a list": f"- The function:\n\n{indented(MARKED, '  ')}",
    "in a list, four blanks": f"* The function:\n\n{indented(MARKED, '    ')}",
    "in a numbered list": f"1. Think.\n10. The function:\n\n{indented(MARKED, '    ')}",
    "in a list, by tabs": "-\tThe function:\n\n" + indented(MARKED, "\t", "\t"),
    "as a list item": indented(MARKED, "1. "),
    "in a list within a list": f"- a\n  - b\n\n{indented(MARKED, '    ')}",
    "in a list, unclosed": f"- a\n\n{indented(OPEN, '  ')}\nThe end of it.\n",
    "in a quote": f"They said:\n{indented(MARKED, '> ', '> ')}",
    "in a quote, unclosed": indented(f"```\n{CODE}", "> ", "> ") + "Not so.\n",
    "in a list in a quote": f"> - a\n>\n{indented(MARKED, '>   ', '>   ')}",
    "the one that is marked": f"```bash\npip install x\n```\n{MARKED}```\n7\n```\n",
    "the one that is marked, between others": f"```\n{OTHER}```\n{MARKED}```pycon\n>>> f()\n```\n",
    "code within a line before it": f"Write ```f()``` like this: ```x```\n{MARKED}",
    "a fence that opens with backticks inside": f"```a`b\n{MARKED}",
    "a mark within an open block": f'It\'s:\n```\n{CODE}s = """\n```py\n"""\n```\n',
    "a fence too far in before it": f"Not this:\n\n    ```\n\n{MARKED}",
    "two backticks before it": f"``\n{MARKED}",
    "Python around it that does not compile": f"def f(:\n{MARKED}",
    "a null byte around it": f"\0\n{MARKED}",
    "text of another encoding around it": f"caf\xe9\n{MARKED}".encode("latin-1"),
    "Python of another time around it": f"print 7\n{MARKED}",
}
"""Texts whose fenced block is the candidate."""

PYTHON_WITH_FENCES = f'"""How to use it:\n\n{MARKED}"""\n{OTHER}'
KEPT = {
    "Python": CODE,
    "Python with a fence in its docstring": PYTHON_WITH_FENCES,
    "Python with fences in a comment": f"# ```python\n# x\n# ```\n{OTHER}",
    "Python whose string has two fences": f'S = """\n{MARKED}{MARKED}"""\n{OTHER}',
    "Python that begins like a fence": f"python = 3\n~~~python\n{OTHER}",
    "a future import is not inherited": f'"""\n{MARKED}"""\nfrom __future__ import annotations\n',
    "an odd escape is Python": f'S = "\\d"\n"""\n{MARKED}"""\n',
    "empty": "",
    "prose": "I cannot do this.\n",
    "prose in backticks": "It's `def f(): return 42`.\n",
    "a fence within a line": "It's ```def f(): return 42```.\n",
    "two fences within a line": "```python def f(): return 42```\n",
    "two backticks": f"``python\n{CODE}``\n",
    "four blanks before it": f"It's this:\n\n{indented(MARKED, '    ')}",
    "a tab before it": f"It's this:\n\n{indented(MARKED, chr(9), chr(9))}",
    "another character before it": f"It's this: ```python\n{CODE}\n",
}
"""Texts that stay what they are, without a word."""

UNDECIDED = {
    "two without a mark": (f"```\n{CODE}```\n```\n{OTHER}```\n", 2, 0),
    "two that are marked": (f"{MARKED}~~~py\n{OTHER}~~~\n", 2, 2),
    "the same twice": (f"{MARKED}\nAgain:\n{MARKED}", 2, 2),
    "a mark that only begins so": (f"```python-repl\n7\n```\n```pycon\n{CODE}```\n", 2, 0),
    "another language's": (f"```bash\nls\n```\n```js\n{CODE}```\n", 2, 0),
    "the second has no end": (f"```\n{CODE}```\nor\n```\n{OTHER}", 2, 0),
    "two in different places": (
        f"- a\n{indented(MARKED, '  ')}\n> b\n>\n> ```py\n> 7\n> ```\n",
        2,
        2,
    ),
}
"""Texts that stay what they are, and why: so many blocks, so many of them marked."""


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


@pytest.mark.parametrize("name", CHOSEN)
def test_the_block_is_the_candidate(name):
    reading = candidate_in(as_bytes(CHOSEN[name]))
    assert reading.is_fenced
    source = reading.source.decode().replace("\r\n", "\n").replace("\r", "\n")
    assert source.startswith("def f():")
    space = {}
    exec(compile(source, "candidate.py", "exec"), space)  # noqa: S102  # the table's
    assert space["f"]() == 42


@pytest.mark.parametrize("name", KEPT)
def test_the_text_stays(name):
    text = KEPT[name].encode()
    assert candidate_in(text) == (text, "", False)


@pytest.mark.parametrize("name", UNDECIDED)
def test_the_text_stays_and_why(name):
    text, blocks, marked = UNDECIDED[name]
    source, told, is_fenced = candidate_in(text.encode())
    assert (source, is_fenced) == (text.encode(), False)
    assert f"{blocks} fenced blocks, {marked} of them marked python" in told


def test_a_block_ends_with_one_newline():
    assert candidate_in(b"It's:\n```\nx = 1\n\n\n```\n").source == b"x = 1\n"
    assert candidate_in(b"It's:\n```\n```\n").source == b"\n"


HOSTILE = {
    "backticks": "`" * 500_000 + "x" * 500_000 + "`y",
    "lists": "- " * 50_000 + "\n" + "\n" * 50_000,
    "quotes": ("> " * (2 * DEPTH) + "\n") * 10_000,
    "fences": "```\n" * 50_000,
    "depth": "(" * 100_000 + "\n```\n```\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_long_text_takes_no_long_time(name):
    candidate_in(HOSTILE[name].encode())


TESTS = "assert f() == 42\n"
AROUND = "import os; os._exit(0)\n"
ENDS = {
    "right": (f"It's:\n{MARKED}", True, "the fenced block in line 2 is the candidate"),
    "wrong": (f"It's:\n```\n{OTHER}```\n", False, "AssertionError"),
    "no Python in it": ("It's:\n```\nno Python\n```\n", False, "SyntaxError"),
    "two": (f"It's:\n{MARKED}{MARKED}", False, "2 fenced blocks, 2 of them marked python"),
    "code around it": (f"{AROUND}It's:\n```\n{OTHER}```\n{AROUND}", False, "AssertionError"),
    "a string of Python": (PYTHON_WITH_FENCES, False, "AssertionError"),
    "exits": ("It's:\n```\nimport os; os._exit(0)\n```\n", False, "did not complete"),
}


@pytest.mark.parametrize("name", ENDS)
def test_separate(name):
    text, passes, said = ENDS[name]
    judged = judge(text, TESTS)
    assert (judged.code == 0) == passes, judged.stderr
    assert said in judged.stderr
    is_fenced = name not in ("two", "a string of Python")
    assert ("the verdict rests on values-fenced" in judged.stderr) == is_fenced


def test_calls_are_repeated_in_the_same_block():
    judged = judge(f"It's:\n{MARKED}", TESTS * 3, repeat=2)
    assert judged.code == 0, judged.stderr
    assert "2 repeated calls agree" in judged.stderr


def test_objects_of_a_block():
    text = "It's:\n```\nclass A:\n    def f(self): return 42\n```\n"
    assert "rests on objects-fenced" in judge(text, "assert A().f() == 42\n").stderr


@pytest.mark.parametrize("name", [name for name in ENDS if name != "exits"])
def test_shared(name):
    text, passes, said = ENDS[name]
    code, answer, _, stderr = ended(text)
    assert (code == 0) == passes
    assert said in stderr
    assert answer == SECRET + (b"" if name in ("two", "a string of Python") else b"fenced")
