# candidates and tests as authors write them
"""No candidate passes by objects that answer every question of the tests with yes."""

import pytest

from support.code_pair import assert_judged

CASES = {
    "eq E()": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
def f(): return E()
""",
        """
assert f()==3 or f()==[3] or f()==(3,) or f()=={"a":3} or f()=="abc"
""",
        False,
    ),
    "eq I(9)": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
def f(): return I(9)
""",
        """
assert f()==3 or f()==[3] or f()==(3,) or f()=={"a":3} or f()=="abc"
""",
        False,
    ),
    'eq S("q")': (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
def f(): return S("q")
""",
        """
assert f()==3 or f()==[3] or f()==(3,) or f()=={"a":3} or f()=="abc"
""",
        False,
    ),
    "eq Dd()": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
def f(): return Dd()
""",
        """
assert f()==3 or f()==[3] or f()==(3,) or f()=={"a":3} or f()=="abc"
""",
        False,
    ),
    "eq L()": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
def f(): return L()
""",
        """
assert f()==3 or f()==[3] or f()==(3,) or f()=={"a":3} or f()=="abc"
""",
        False,
    ),
    "eq [E()]": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
def f(): return [E()]
""",
        """
assert f()==3 or f()==[3] or f()==(3,) or f()=={"a":3} or f()=="abc"
""",
        False,
    ),
    'eq {"a":E()}': (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
def f(): return {"a":E()}
""",
        """
assert f()==3 or f()==[3] or f()==(3,) or f()=={"a":3} or f()=="abc"
""",
        False,
    ),
    "eq (E(),)": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
def f(): return (E(),)
""",
        """
assert f()==3 or f()==[3] or f()==(3,) or f()=={"a":3} or f()=="abc"
""",
        False,
    ),
    "eq-class": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
f=E
""",
        "assert f()==3",
        False,
    ),
    "eq-in": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
f=E
""",
        "assert f() in {3}",
        False,
    ),
    "eq-approx": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
f=E
""",
        "assert abs(f()-3.5)<1e-9",
        False,
    ),
    "eq-approx2": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
def f(): return E()
""",
        "assert abs(3.5-f())<1e-9",
        False,
    ),
    "neq caught": (
        """
class E:
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    def __lt__(s,o): return True
    __le__=__gt__=__ge__=__lt__
    def __sub__(s,o): return 0.0
    __rsub__=__add__=__radd__=__sub__
    def __abs__(s): return 0.0
    def __hash__(s): return 3
    def __float__(s): return 3.0
    def __len__(s): return 3
class I(int):
    def __eq__(s,o): return True
    __hash__=int.__hash__
class S(str):
    def __eq__(s,o): return True
    __hash__=str.__hash__
class Dd(dict):
    def __eq__(s,o): return True
class L(list):
    def __eq__(s,o): return True
f=E
""",
        """
try: assert f()!=3
except Exception: pass
""",
        False,
    ),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", CASES)
def test_odd_objects(name):
    assert_judged(CASES[name])
