# ruff: noqa: E501  # candidates and tests as authors write them
"""Tests of pack authors keep working when the candidate is in another process."""

import pytest

from support.code_pair import judge

CASES = {
    "many callbacks": (
        "def each(f, n, kept):\n    for i in range(n): kept.append(f([i])[0])",
        "kept = []\neach(lambda item: item, 3000, kept)\nassert kept == list(range(3000))",
        True,
    ),
    "a callback changes an argument": (
        "def outer(shared, f):\n    shared.append([1]); f(shared); shared.append(len(shared[0]))",
        "def look(items): items[0].append(9)\nshared = []\nouter(shared, look)\nassert shared == [[1, 9], 2]",
        True,
    ),
    "simple": ("def f(a,b=2): return a+b", "assert f(1)==3 and f(1,b=5)==6", True),
    "wrong": ("def f(a,b=2): return a+b", "assert f(1)==4", False),
    "types": (
        "def same(x): return x",
        r"""
import math, collections, decimal, fractions, datetime
vals=[0,-1,10**400,-(2**63),2**63,1.5,-0.0,float('inf'),float('-inf'),1e308,1+2j,b'',b'\xff\0',bytearray(b'x'),'','é','\ud800','\ud83d\ude00','😀',(),(1,),((1,2),[3]),[],[1,[2,[3]]],set(),{1,2},frozenset({1,(2,3)}),{},{1:2,(1,2):[3],None:True,'a':{1.5:b'z'},frozenset({1}):0},None,True,False,range(1,10,2),slice(1,None,2),...,collections.deque([1,2],5),collections.OrderedDict([(2,1),(1,2)]),collections.Counter('aab'),decimal.Decimal('1.10'),fractions.Fraction(1,3),datetime.date(2020,1,2),datetime.timedelta(1,2,3),datetime.datetime(2020,1,2,3,4,5,6),datetime.datetime(2020,1,2,tzinfo=datetime.timezone.utc)]
for v in vals:
    r=same(v)
    assert type(r) is type(v), (v, type(r))
    assert r==v and repr(r)==repr(v), (v,r)
assert math.isnan(same(float('nan')))
d=collections.defaultdict(list); d[1].append(2)
r=same(d); assert r==d and r[5]==[]
x=[1]; assert same(x) is not x
y=[x,x]; r=same(y); assert r[0] is r[1] is not x
c=[]; c.append(c); r=same(c); assert r[0] is r
assert list(same({1:2}.keys()))==[1] and same({'a':1}.keys())=={'a'}
P=collections.namedtuple('P','a b'); assert same(P(1,2)).b==2
""",
        True,
    ),
    "inplace": (
        """
def grow(l,d,s,b):
    l.append(4); l[0].append(9); d['x']=l; s.add(7); b.extend(b'yz')
def swap(rows): rows.reverse()
def alias(a,b): a.append(1); assert b is a
def both(l): l.append(1); return len(l)
""",
        """
inner=[1]; l=[inner]; d={}; s={1}; b=bytearray(b'x')
grow(l,d,s,b)
assert l==[[1,9],4] and l[0] is inner and d['x'] is l and s=={1,7} and b==bytearray(b'xyz')
one,two=[1],[2]; rows=[one,two]; swap(rows); assert rows[0] is two and rows[1] is one
z=[]; alias(z,z); assert z==[1]
assert both(z)==2 and z==[1]
""",
        True,
    ),
    "errors": (
        r"""
import json
class Mine(ValueError):
    def __init__(self, n): super().__init__(f"n={n}"); self.n=n
def bad(kind):
    if kind==0: raise ValueError("no")
    if kind==1: return {}['k']
    if kind==2: return open('/nope')
    if kind==3: raise Mine(7)
    if kind==4: json.loads('{')
    if kind==5: return 1/0
    if kind==6: b'\xff'.decode()
    if kind==7:
        try: 1/0
        except ZeroDivisionError as e: raise RuntimeError('outer') from e
""",
        """
import json
def raised(k, n):
    try: bad(n)
    except k as e: return e
    assert 0, n
e=raised(ValueError,0); assert type(e).__name__=='ValueError' and str(e)=='no' and e.args==('no',)
e=raised(KeyError,1); assert e.args==('k',) and str(e)=="'k'"
e=raised(FileNotFoundError,2); assert e.errno==2 and '/nope' in str(e), str(e)
e=raised(Mine,3); assert str(e)=='n=7' and e.n==7 and isinstance(e,ValueError) and type(e) is Mine
assert raised(ValueError,3).n==7
e=raised(json.JSONDecodeError,4); assert e.pos==1
e=raised(ZeroDivisionError,5)
e=raised(UnicodeDecodeError,6); assert e.reason
e=raised(RuntimeError,7); assert isinstance(e.__cause__, ZeroDivisionError)
m=Mine(3); assert m.n==3 and str(m)=='n=3'
""",
        True,
    ),
    "gen": (
        """
def count(n):
    for i in range(n): yield i
def inf():
    n=0
    while 1: yield n; n+=1
class It:
    def __init__(s,n): s.n=n
    def __iter__(s): return s
    def __next__(s):
        if s.n==0: raise StopIteration
        s.n-=1; return s.n
def mp(): return map(str,[1,2])
""",
        """
import itertools, types, inspect
assert list(count(3))==[0,1,2]
assert list(itertools.islice(inf(),4))==[0,1,2,3]
assert list(It(2))==[1,0] and next(It(2))==1 and list(itertools.islice(inf(), 30000))[-1]==29999
g=count(5); assert next(g)==0; g.close()
try: next(g); assert 0
except StopIteration: pass
assert isinstance(count(1), types.GeneratorType) and inspect.isgenerator(count(1))
assert list(mp())==['1','2'] and sum(count(4))==6
a,b=mp(); assert (a,b)==('1','2')
""",
        True,
    ),
    "classes": (
        """
import dataclasses, enum, abc
class V:
    zero = 0
    def __init__(self,x,y): self.x=x; self.y=y
    def __add__(self,o): return V(self.x+o.x,self.y+o.y)
    def __mul__(self,k):
        if isinstance(k,V): return self.x*k.x+self.y*k.y
        return V(self.x*k,self.y*k)
    __rmul__=__mul__
    def __eq__(self,o): return isinstance(o,V) and (self.x,self.y)==(o.x,o.y)
    def __hash__(self): return hash((self.x,self.y))
    def __repr__(self): return f"V({self.x}, {self.y})"
    def __len__(self): return 2
    def __iter__(self): return iter((self.x,self.y))
    def __getitem__(self,i): return (self.x,self.y)[i]
    def __abs__(self): return (self.x**2+self.y**2)**.5
    def __lt__(self,o): return abs(self)<abs(o)
    def __call__(self,k): return self.x+k
    def __contains__(self, k): return k in (self.x,self.y)
    def __bool__(self): return bool(self.x or self.y)
    @property
    def norm(self): return abs(self)
    @norm.setter
    def norm(self, v): self.x=v; self.y=0
    @classmethod
    def unit(cls): return cls(1,0)
    @staticmethod
    def dim(): return 2
    def chain(self): return self
class W(V): pass
class Ctx:
    def __init__(self): self.log=[]
    def __enter__(self): self.log.append('in'); return self
    def __exit__(self,t,e,tb): self.log.append(t.__name__ if t else None); return t is ValueError
@dataclasses.dataclass
class D:
    a:int; b:list
class Color(enum.Enum):
    RED=1; BLUE=2
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
class Sq(Shape):
    def __init__(s,a): s.a=a
    def area(s): return s.a*s.a
class Stack(list):
    def push(self,x): self.append(x); return self
    def peek(self): return self[-1]
""",
        """
v=V(3,4)
assert v.x==3 and v.norm==5.0 and list(v)==[3,4] and len(v)==2 and v.dim()==2 and v[0]==3 and v[-1]==4 and abs(v)==5.0
assert repr(v)=='V(3, 4)' and str(v)=='V(3, 4)' and f"{v}"=='V(3, 4)'
assert V.unit().x==1 and (v+V(1,1)).x==4 and v*V(1,0)==3 and V.dim()==2 and V.zero==0 and isinstance(v,V) and type(v) is V and type(v).__name__=='V'
assert isinstance(W(1,2),V) and issubclass(W,V) and not isinstance(v,W) and V in [W, V] and V
assert v(1)==4
v.norm=10; assert v.x==10; v.y=1; assert v.y==1; assert v.chain().y==1 and v.chain() is not v
assert not hasattr(v,'nope') and hasattr(v,'x') and callable(v) and not callable(Sq(1))
with Ctx() as c: pass
assert c.log==['in',None]
try:
    with Ctx() as c: raise KeyError('x')
    assert 0
except KeyError: pass
assert c.log[-1]=='KeyError'
d=D(1,[2]); assert d.b==[2] and d.a==1 and repr(d)=='D(a=1, b=[2])' and d is not None
assert Color['RED'].value==Color.RED.value==1 and Color(2).name=='BLUE' and [c.name for c in Color]==['RED','BLUE'] and len(Color)==2
assert isinstance(Color.RED, Color)
try: Shape(); assert 0
except TypeError as e: assert 'abstract' in str(e)
assert Sq(3).area()==9 and isinstance(Sq(2),Shape)
s=Stack(); s.push(1).push(2); assert len(s)==2 and s.peek()==2 and list(s)==[1,2]
m=v.chain; assert m().y==1
""",
        True,
    ),
    "callbacks": (
        """
def apply(f,*a,**k): return f(*a,**k)
def mapper(f, xs): return [f(x) for x in xs]
def make(n):
    def inner(x): return x+n
    return inner
def memo(f):
    cache={}
    def w(*a):
        if a not in cache: cache[a]=f(*a)
        return cache[a]
    w.__name__=f.__name__; w.cache=cache
    return w
def catch(f):
    try: f()
    except ValueError as e: return 'caught '+str(e)
def passthru(f): return f()
def ident(f): return f
def mutate(l, f): l.append(1); f(l); l.append(3); return l
def total(it): return sum(it)
def mysort(xs, key): return sorted(xs, key=key)
""",
        """
assert apply(lambda a,b: a*b, 3, b=4)==12
calls=[]
def sq(x): calls.append(x); return x*x
assert mapper(sq,[1,2])==[1,4] and calls==[1,2]
assert make(3)(4)==7 and mapper(make(1),[1])==[2]
m=memo(sq); calls.clear(); assert m(5)==25 and m(5)==25 and calls==[5] and m.__name__=='sq' and m.cache=={(5,):25}
def boom(): raise ValueError('v')
assert catch(boom)=='caught v'
class Own(Exception): pass
def own(): raise Own('me')
try: passthru(own); assert 0
except Own as e: assert e.args==('me',)
assert ident(sq) is sq and apply(len, 'abc')==3 and apply(str.upper, 'a')=='A' and apply(int, '7')==7
seen=[]; l=[0]
def look(x): seen.append(list(x)); x.append(2)
assert mutate(l,look)==[0,1,2,3] and l==[0] and seen==[[0,1]]
assert total(iter([1,2,3]))==6 and total(x for x in range(3))==3 and mysort(['bb','a'],key=len)==['a','bb']
@memo
def fib(n): return n if n<2 else fib(n-1)+fib(n-2)
assert fib(15)==610
class Host:
    def double(self, x): return 2*x
assert apply(Host().double, 4)==8
""",
        True,
    ),
    "print": (
        """
import sys
print("import time")
def p(): print("hello", end=""); sys.stderr.write("err"); sys.stdout.buffer.write(b"raw")
""",
        """
import io, contextlib
o=io.StringIO(); e=io.StringIO()
with contextlib.redirect_stdout(o), contextlib.redirect_stderr(e): p()
assert o.getvalue()=='helloraw' and e.getvalue()=='err', (o.getvalue(), e.getvalue())
""",
        True,
    ),
    "check": (
        """
from typing import List
import math
X=[1,{2:3}]; N=10**30
def f(x: List[int]): "doc"; return x
""",
        """
import securebench_candidate
METADATA={}
def check(candidate): assert candidate([1])==[1]
check(f)
assert X==[1,{2:3}] and N==10**30 and math.sqrt(4)==2 and __name__=='__securebench_tests__' and f.__name__=='f' and f.__doc__=='doc'
assert securebench_candidate.f([2])==[2]
""",
        True,
    ),
    "unittest": (
        "def f(x): return x*2",
        """
import unittest
class T(unittest.TestCase):
    def test_a(self): self.assertEqual(f(2),4)
    def test_b(self):
        with self.assertRaises(TypeError): f()
r=unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T)); assert r.wasSuccessful() and r.testsRun==2
""",
        True,
    ),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", CASES)
def test_tests_of_authors(name):
    candidate, tests, passes, *declared = CASES[name]
    judged = judge(candidate, tests, declared="".join(declared))
    assert (judged.code == 0) == passes, judged.stderr
