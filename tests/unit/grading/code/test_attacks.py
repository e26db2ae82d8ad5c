# candidates and tests as authors write them
"""No candidate passes by anything but the right answers."""

import pytest

from support.code_pair import assert_judged

CASES = {
    "exit0 import": ("import os; os._exit(0)", "assert False", False),
    "sysexit import": ("import sys; sys.exit(0)", "assert False", False),
    "raise import": (
        """
raise ValueError("boo")
""",
        "assert False",
        False,
    ),
    "exit in call": (
        """
import os
def f(): os._exit(0)
""",
        "f()",
        False,
    ),
    "sysexit in call": (
        """
import sys
def f(): sys.exit(0)
""",
        "f()",
        False,
    ),
    "sysexit caught": (
        """
import sys
def f(): sys.exit(0)
def g(): return 1
""",
        """
try: f()
except SystemExit: pass
assert g()==1
""",
        False,
    ),
    "exit thread": (
        """
import os,threading,time
def f(): threading.Timer(.2,lambda: os._exit(0)).start()
""",
        """
f()
import time; time.sleep(.6)
""",
        False,
    ),
    "kill": (
        """
import os,signal
def f(): os.kill(os.getpid(),9)
""",
        "f()",
        False,
    ),
    "exec": (
        """
import os
def f(): os.execv("/bin/true",["true"])
""",
        "f()",
        False,
    ),
    "crash": (
        """
import ctypes
def f(): ctypes.string_at(0)
""",
        "f()",
        False,
    ),
    "builtins": (
        """
import builtins, sys, unittest
builtins.AssertionError=ValueError; builtins.abs=lambda x: 0; builtins.all=lambda x: True
def abs(x): return 0
def all(x): return True
math=type("m",(),{"isclose":staticmethod(lambda *a: True)})
sys.path.insert(0,"/tmp"); sys.modules["math"]=math
unittest.TestCase.assertEqual=lambda *a: None
def f(): return 5
""",
        """
import math
assert abs(f()-3)<1 or all([False]) or math.isclose(f(),3)
""",
        False,
    ),
    "declared": ("def sum(a,b): return a+b", "assert sum(1,2)==3", True, "sum"),
    "undeclared": ("def sum(a,b): return a+b", "assert sum(1,2)==3", False),
    "garbage": (
        r"""
import socket,os,json,struct,sys
def sock():
    for fd in range(3,20):
        try:
            s=socket.socket(fileno=os.dup(fd))
            if s.family==socket.AF_UNIX and s.getpeername() is not None: return s
        except OSError: pass
def send(data): sock().sendall(struct.pack(">I",len(data))+data)
def f(): sock().sendall(b"\xff"*100)
""",
        "f()",
        False,
    ),
    "garbage2": (
        """
import socket,os,json,struct,sys
def sock():
    for fd in range(3,20):
        try:
            s=socket.socket(fileno=os.dup(fd))
            if s.family==socket.AF_UNIX and s.getpeername() is not None: return s
        except OSError: pass
def send(data): sock().sendall(struct.pack(">I",len(data))+data)
def f(): send(b"[[[]]]")
""",
        "f()",
        False,
    ),
    "garbage3": (
        """
import socket,os,json,struct,sys
def sock():
    for fd in range(3,20):
        try:
            s=socket.socket(fileno=os.dup(fd))
            if s.family==socket.AF_UNIX and s.getpeername() is not None: return s
        except OSError: pass
def send(data): sock().sendall(struct.pack(">I",len(data))+data)
def f(): send(json.dumps(["0"*32,"return",[],[],3]).encode())
""",
        "assert f()==3",
        False,
    ),
    "deep": (
        """
import socket,os,json,struct,sys
def sock():
    for fd in range(3,20):
        try:
            s=socket.socket(fileno=os.dup(fd))
            if s.family==socket.AF_UNIX and s.getpeername() is not None: return s
        except OSError: pass
def send(data): sock().sendall(struct.pack(">I",len(data))+data)
def f(): send(b"["*100000)
""",
        "assert f()==3",
        False,
    ),
    "early": (
        """
import socket,os,json,struct,sys
def sock():
    for fd in range(3,20):
        try:
            s=socket.socket(fileno=os.dup(fd))
            if s.family==socket.AF_UNIX and s.getpeername() is not None: return s
        except OSError: pass
def send(data): sock().sendall(struct.pack(">I",len(data))+data)
def g(): return 1
send(json.dumps(["0"*32,"return",[],[],3]).encode())
""",
        "assert g()==1",
        False,
    ),
    "late": (
        """
import socket,os,json,struct,sys
def sock():
    for fd in range(3,20):
        try:
            s=socket.socket(fileno=os.dup(fd))
            if s.family==socket.AF_UNIX and s.getpeername() is not None: return s
        except OSError: pass
def send(data): sock().sendall(struct.pack(">I",len(data))+data)

import threading
def g():
    threading.Timer(.3,lambda: send(json.dumps(["0"*32,"return",[],[],3]).encode())).start()
    return 1
""",
        """
assert g()==1
import time; time.sleep(.8)
""",
        False,
    ),
    "forge current": (
        """
import socket,os,json,struct,sys
def sock():
    for fd in range(3,20):
        try:
            s=socket.socket(fileno=os.dup(fd))
            if s.family==socket.AF_UNIX and s.getpeername() is not None: return s
        except OSError: pass
def send(data): sock().sendall(struct.pack(">I",len(data))+data)

import gc
def f():
    send(json.dumps(["x","return",[],[],3]).encode())
""",
        "assert f()==3",
        False,
    ),
    "pickle": (
        """
import socket,os,json,struct,sys
def sock():
    for fd in range(3,20):
        try:
            s=socket.socket(fileno=os.dup(fd))
            if s.family==socket.AF_UNIX and s.getpeername() is not None: return s
        except OSError: pass
def send(data): sock().sendall(struct.pack(">I",len(data))+data)
import pickle
def f(): send(pickle.dumps(print))
""",
        "assert f()==3",
        False,
    ),
    "big": (
        """
def f(): return "x"*100_000_000
""",
        "assert f()==3",
        False,
    ),
    "million digits": (
        "def f(): return 10**1000000",
        "assert f()%10==0 and f().bit_length()>3000000",
        True,
    ),
    "named os": (
        """
import os
f=os._exit
g=eval
""",
        """
assert g("1+1")==2
f(0)
""",
        False,
    ),
    "exc class": (
        """
import os
f=SystemExit
""",
        "raise f(0)",
        False,
    ),
    "walk": (
        """
import sys, os
def f():
    out=[]
    for r in (sys.argv, list(os.environ.values())): out+=r
    return " ".join(map(str,out))
""",
        """
assert "tests.json" not in f() and "CANARY" not in f()
""",
        True,
    ),
    "cannot": (
        "def f(x): return x",
        """
class Own: pass
try: f(Own())
except TypeError: pass
except Exception: pass
""",
        False,
    ),
    "deep result": (
        """
def f():
    x=[]
    for i in range(900): x=[x]
    return x
""",
        "assert f()",
        True,
    ),
    "hang write": (
        """
def f(): print("x"*5_000_000); return 1
""",
        "assert f()==1",
        True,
    ),
    "subclass": ("class A: pass", "class B(A): pass", False),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", CASES)
def test_attacks(name):
    assert_judged(CASES[name])
