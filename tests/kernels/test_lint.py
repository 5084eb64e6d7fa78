"""The codes of the lint of NKI sources, each on its smallest examples and on their clean counterparts.

An example marks the lines where its code must appear with `# here`; nothing else may be found in it.
"""

import textwrap

import pytest

from trncheck.kernels.simulator.lint import CODES, lint_source

PLAIN = "@nki.jit\ndef k(x):\n    return x\n"
IMPORTS = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"


def kernel(body: str, signature: str = "x, n=4") -> str:
    """A kernel with this body, which can use the tiles `a` and `b`, the register `r` and the scalar `s`."""
    head = [
        "a = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)",
        "b = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)",
        "r = nisa.register_alloc(0)",
        "s = nisa.scalar_load(x)",
    ]
    lines = "\n".join(head) + "\n" + textwrap.dedent(body).strip()
    return f"{IMPORTS}@nki.jit\ndef k({signature}):\n{textwrap.indent(lines, '    ')}\n"


def module(text: str) -> str:
    return IMPORTS + textwrap.dedent(text)


EXAMPLES = {
    "NKI001": [
        (kernel("if r: # here\n    pass"), kernel("if n:\n    pass")),
        (kernel("if s + 1 < n: # here\n    pass"), kernel("if n + 1 < 3:\n    pass")),
        (kernel("while r: # here\n    nisa.register_load(r, a)"), kernel("while n:\n    n -= 1")),
        (kernel("assert s > 0 # here"), kernel("assert n > 0")),
        (kernel("y = 1 if s else 2 # here"), kernel("y = 1 if n else 2")),
        (kernel("y = not r # here"), kernel("y = not n")),
        (kernel("y = n and r # here"), kernel("y = n and 3")),
        (kernel("y = 0 < s < 3 # here"), kernel("y = 0 < n < 3")),
        (kernel("y = [m for m in (1, 2) if s > m] # here"), kernel("y = [s for s in (1, 2) if s > 1]")),
        (
            kernel("def body(i):\n    if i == 0: # here\n        pass\nnl.fori_loop(0, n, body)"),
            kernel("def body(i):\n    if n == 0:\n        pass\nnl.fori_loop(0, n, body)"),
        ),
        (kernel("t = s\nu = -t * 2\nif u: # here\n    pass"), kernel("s = n\nif s:\n    pass")),
    ],
    "NKI002": [
        (kernel("y = int(s) # here"), kernel("y = int(n)")),
        (kernel("for i in range(s): # here\n    pass"), kernel("for i in range(n):\n    pass")),
        (kernel("y = (1, 2)[s] # here"), kernel("y = (1, 2)[n]")),
        (kernel("y = a[:, s : n] # here"), kernel("y = a.ap([[8, 128], [1, 1]], scalar_offset=s)")),
    ],
    "NKI003": [
        (kernel("y = r + 1 # here"), kernel("y = s + 1")),
        (kernel("y = s // 2 # here"), kernel("y = n // 2")),
        (kernel("r += 1 # here"), kernel("s -= 1")),
    ],
    "NKI004": [
        (kernel("for i in nl.dynamic_range(n): # here\n    pass"), kernel("for i in range(n):\n    pass")),
    ],
    "NKI005": [
        (
            kernel("def body(i):\n    pass\nnl.fori_loop(0, n, body, step=-1) # here"),
            kernel("def body(i):\n    pass\nnl.fori_loop(0, n, body, step=2)"),
        ),
        (
            kernel("def body(i):\n    pass\nnl.fori_loop(0, n, body, 0.5) # here"),
            kernel("def body(i):\n    pass\nnl.fori_loop(0, n, body, n)"),
        ),
    ],
    "NKI006": [
        (
            kernel("def body(i):\n    return a # here\nnl.fori_loop(0, n, body)"),
            kernel("def body(i):\n    return None\nnl.fori_loop(0, n, body)"),
        ),
        (
            module("def body(i):\n    return i # here\n@nki.jit\ndef k(x):\n    nl.fori_loop(0, 2, body_fun=body)"),
            module("def body(i):\n    return\n@nki.jit\ndef k(x):\n    nl.fori_loop(0, 2, body_fun=body)"),
        ),
    ],
    "NKI007": [
        (
            kernel("def body(i):\n    i = i + 1 # here\nnl.fori_loop(0, n, body)"),
            kernel("def body(i):\n    j = i + 1\nnl.fori_loop(0, n, body)"),
        ),
        (
            kernel("def body(i):\n    nisa.register_move(i, 0) # here\nnl.fori_loop(0, n, body)"),
            kernel("def body(i):\n    nisa.register_move(r, 0)\nnl.fori_loop(0, n, body)"),
        ),
    ],
    "NKI008": [
        (
            kernel("def body(go): # here\n    nisa.register_load(go, a)\nnl.while_loop(r, body)"),
            kernel("def body(go):\n    nisa.register_load(go, a)\n    return go\nnl.while_loop(r, body)"),
        ),
    ],
    "NKI009": [
        (
            kernel("t = a\ndef body(i):\n    nonlocal t # here\n    t = b\nnl.fori_loop(0, n, body)"),
            kernel("t = a\ndef body(i):\n    t = b\nnl.fori_loop(0, n, body)"),
        ),
        (
            kernel(
                "kept = []\ndef body(i):\n    t = nl.zeros((1, 1), nl.int32)\n    kept.append(t) # here\n"
                "nl.fori_loop(0, n, body)"
            ),
            kernel(
                "def body(i):\n    kept = []\n    t = nl.zeros((1, 1), nl.int32)\n    kept.append(t)\n"
                "nl.fori_loop(0, n, body)"
            ),
        ),
        (
            kernel("d = {}\ndef body(i):\n    d['t'] = nl.zeros((1, 1), nl.int32) # here\nnl.fori_loop(0, n, body)"),
            kernel("d = {}\nfor i in range(n):\n    d['t'] = nl.zeros((1, 1), nl.int32)"),
        ),
    ],
    "NKI010": [
        (
            kernel("y = nl.ndarray((128, 8), nl.float32, buffer='sbuf') # here"),
            kernel("y = nl.ndarray((128, 8), 'float32', buffer=nl.sbuf)"),
        ),
        (kernel("nl.ndarray((1, 8), nl.int32, 'psum') # here"), kernel("nl.ndarray((1, 8), nl.int32, nl.psum)")),
    ],
    "NKI011": [
        (kernel("nisa.memset(a, 0.0, engine=5) # here"), kernel("nisa.memset(a, 0.0, engine=nisa.engine.vector)")),
        (kernel("nisa.dma_copy(a, x, None, 1) # here"), kernel("nisa.dma_copy(a, x, None, nisa.oob_mode.skip)")),
        (kernel("nisa.rng(dst=a, engine=3) # here"), kernel("nisa.rng(dst=a, engine=nisa.engine.gpsimd)")),
    ],
    "NKI012": [
        (
            kernel("nisa.tensor_copy(dst=a, src=b, dtype=nl.bfloat16) # here"),
            kernel("nisa.tensor_copy(dst=a, src=b, name='copy')"),
        ),
    ],
    "NKI013": [
        (kernel("y = nisa.tensor_copy(b) # here"), kernel("nisa.tensor_copy(a, b)")),
        (kernel("nisa.activation(op=nl.exp, data=b) # here"), kernel("nisa.activation(dst=a, op=nl.exp, data=b)")),
        (kernel("y = nl.ndarray((128, 8)) # here"), kernel("y = nl.ndarray(shape=(128, 8), dtype=nl.int32)")),
        (
            kernel("nisa.tensor_copy(*(a, b))\nnisa.tensor_copy(a) # here"),
            kernel("nisa.tensor_copy(*(a, b))\nnisa.memset(a, **{'value': 0.0})"),
        ),
    ],
    "NKI014": [
        (kernel("nisa.reciprocal(a, b, 1.0) # here"), kernel("nisa.reciprocal(a, b)")),
    ],
    "NKI015": [
        (kernel("y = nl.arange(128) # here"), kernel("y = range(128)")),
        (kernel("y = nl.mgrid[0:128, 0:8] # here"), kernel("y = a[0:128, 0:8]")),
        (
            kernel("y = nl.zeros((nl.par_dim(128), 8), nl.int32) # here"),
            kernel("y = nl.zeros((128, 8), nl.int32)"),
        ),
        (
            kernel("nisa.tensor_copy_dynamic_src(a, b) # here"),
            kernel("nisa.tensor_copy(a, b.ap([[8, 128], [1, 8]], scalar_offset=s))"),
        ),
    ],
    "NKI016": [
        (kernel("nisa.dma_copy(a, x, mask=n) # here"), kernel("nisa.dma_copy(a[:n], x)")),
        (kernel("nisa.dma_copy(a, x, dst_rmw_op=nl.add) # here"), kernel("nisa.dma_compute(a, [a, b], nl.add)")),
        (
            kernel("nisa.sendrecv(a, b, 1, 1, 0, use_gpsimd_dma=True) # here"),
            kernel("nisa.sendrecv(a, b, 1, 1, 0, dma_engine=nisa.dma_engine.gpsimd_dma)"),
        ),
        (kernel("nisa.register_move(r, 0, imm=0) # here"), kernel("nisa.register_move(r, 0)")),
    ],
    "NKI017": [
        (
            kernel("nisa.dma_compute(a, [a, b], [1.0, 1.0], nl.add) # here"),
            kernel("nisa.dma_compute(a, [a, b], nl.add, [1.0, 1.0])"),
        ),
        (
            kernel("nisa.affine_select(a, [[1, 8]], 0, 1, b, 0.0) # here"),
            kernel("nisa.affine_select(a, [[1, 8]], 1, b, 0.0, offset=0)"),
        ),
    ],
    "NKI020": [
        (
            "import nki\nimport neuronxcc.nki.language as nl # here\n" + PLAIN.replace("x\n", "nl.exp\n"),
            "import nki\nimport neuronxcc.nki.language as nl\n" + PLAIN,
        ),
        (
            "from neuronxcc import nki # here\n" + PLAIN,
            "try:\n    import nki\nexcept ImportError:\n    from neuronxcc import nki\n" + PLAIN,
        ),
        (
            "import nki\nfrom neuronxcc.nki.typing import tensor # here\n@nki.jit\ndef k(x: tensor):\n    return x\n",
            "import nki\n@nki.jit\ndef k(x: 'tensor'):\n    return x\n",
        ),
    ],
    "NKI021": [
        (
            module("@nki.jit(platform_target='trn2') # here\ndef k(x):\n    return x\n"),
            module("@nki.jit()\ndef k(x):\n    return x\n"),
        ),
    ],
    "NKI022": [
        (
            module("@nki.jit\ndef k(x):\n    return x\ndef run(x):\n    return k[2, 1](x) # here\n"),
            module("@nki.jit\ndef k(x):\n    return x\ndef run(x):\n    return k[2](x)\n"),
        ),
        (
            module("def f(x):\n    return x\nk = nki.jit(f)\ny = k[4](1) # here\n"),
            module("def f(x):\n    return x\nk = nki.jit(f)\nn = 4\ny = k[n](1)\ndef run(k):\n    return k[4]\n"),
        ),
    ],
    "NKI023": [
        (kernel("return a # here"), kernel("return x")),
        (kernel("y = nl.ndarray((1, 8), nl.int32)\nreturn x, y # here"), kernel("a = x\nreturn a")),
        (
            kernel("y = nl.ndarray((1, 8), nl.int32, buffer=nl.hbm)\nreturn [y] # here"),
            kernel("y = nl.ndarray((1, 8), nl.int32, buffer=nl.shared_hbm)\nreturn [y]"),
        ),
    ],
    "NKI030": [
        ("import time\n" + kernel("y = time.time() # here"), "import time\n" + kernel("y = n") + "t = time.time()\n"),
        ("import os\n" + kernel("y = os.environ['N'] # here"), "import os\n" + kernel("y = os.path.sep")),
        ("from random import random\n" + kernel("y = random() # here"), kernel("random = n\ny = random")),
        ("import numpy as np\n" + kernel("y = np.random.rand() # here"), kernel("y = nl.rand")),
        (kernel("y = open('f') # here"), "def open(f):\n    return f\n" + kernel("y = open('f')")),
    ],
    "NKI031": [
        ("C = 0\n" + kernel("global C # here\nC = 1"), "C = 0\n" + kernel("y = C")),
        ("D = {}\n" + kernel("D['k'] = n # here"), "D = {}\n" + kernel("y = D['k']")),
        ("L = []\n" + kernel("L.append(n) # here"), "L = []\n" + kernel("L = []\nL.append(n)")),
    ],
    "NKI032": [
        (module("@nki.jit\ndef k(x, y=[]): # here\n    pass\n"), module("@nki.jit\ndef k(x, y=()):\n    pass\n")),
    ],
    "NKI101": [(kernel("y = n is None # here"), kernel("y = n == None"))],
    "NKI102": [
        (
            module("@nki.jit\ndef k(x, *, n=1): # here\n    return x\n"),
            module("@nki.jit\ndef k(x, n=1):\n    return x\ndef host(*, n):\n    return k(n)\n"),
        ),
    ],
    "NKI103": [
        (
            module("@nki.jit\ndef k(xs: list[int]): # here\n    return xs\n"),
            module("@nki.jit\ndef k(xs: tuple[int, ...]):\n    return xs\n"),
        ),
    ],
    "NKI104": [
        (
            module("class C: # here\n    n = 1\n@nki.jit\ndef k(x):\n    return C()\n"),
            module("class C(nl.NKIObject):\n    n = 1\nclass Host:\n    pass\n@nki.jit\ndef k(x):\n    return C()\n"),
        ),
        (
            module("class C(nl.NKIObject, dict): # here\n    n = 1\n@nki.jit\ndef k(c: C):\n    return c\n"),
            module("class B(nl.NKIObject):\n    n = 1\nclass C(B):\n    pass\n@nki.jit\ndef k(c: C):\n    return c\n"),
        ),
    ],
    "NKI105": [
        (kernel("def g():\n    yield n # here"), kernel("def g():\n    return n")),
        (kernel("try: # here\n    y = n\nexcept ValueError:\n    y = 0"), kernel("y = n")),
        (kernel("y = sum(m for m in (1, 2)) # here"), kernel("y = sum([m for m in (1, 2)])")),
        (kernel("y = eval('n') # here"), kernel("y = n")),
        (kernel("c = 0\ndef f():\n    nonlocal c # here\n    c = 1"), kernel("c = 0\ndef f():\n    return c + 1")),
        (kernel("async def f(): # here\n    return n"), kernel("def f():\n    return n")),
    ],
    "NKI106": [("from math import * # here\n" + kernel("y = pi"), "from math import pi\n" + kernel("y = pi"))],
    "NKI107": [(kernel("y = {1: n} # here"), kernel("y = {'1': n}"))],
    "NKI108": [
        ("import numpy as np\n" + kernel("np.prod(x.shape) # here"), "import numpy as np\n" + kernel("y = np.int32")),
        (
            "import torch\n" + kernel("y = torch.zeros(2) # here"),
            "import numpy as np\n" + kernel("y = nl.shared_constant(np.eye(2))"),
        ),
    ],
    "NKI109": [
        (
            module("@nki.jit\ndef f(x):\n    return x\n@nki.jit\ndef k(x):\n    return f(x) # here\n"),
            module("def f(x):\n    return x\n@nki.jit\ndef k(x):\n    return f(x)\ndef host(x):\n    return k(x)\n"),
        ),
    ],
    "NKI110": [
        (module("@nki.jit(mode='trace') # here\ndef k(x):\n    return x\n"), module(PLAIN)),
    ],
    "NKI111": [(kernel("for i in nl.affine_range(n): # here\n    pass"), kernel("for i in range(n):\n    pass"))],
    "NKI112": [
        (
            kernel("nisa.memset(a, 0.0, engine=nisa.vector_engine) # here"),
            kernel("nisa.memset(a, 0.0, engine=nisa.engine.vector)"),
        ),
    ],
    "NKI113": [(kernel("y = nl.tile_size.psum_fmax # here"), kernel("y = nl.tile_size.psum_bank_fmax"))],
}  # fmt: skip

CASES = [
    pytest.param(code, bad, clean, id=f"{code}-{number}")
    for code, examples in EXAMPLES.items()
    for number, (bad, clean) in enumerate(examples)
]


def found(text: str) -> list[tuple[str, int]]:
    return [(finding.code, finding.line) for finding in lint_source(text, "k.py")]


def test_every_code_has_an_example():
    assert list(EXAMPLES) == list(CODES)


@pytest.mark.parametrize(("code", "bad", "clean"), CASES)
def test_code(code, bad, clean):
    marked = [number for number, line in enumerate(bad.splitlines(), 1) if "# here" in line]
    assert marked
    assert sorted(set(found(bad))) == [(code, line) for line in marked]
    assert lint_source(clean, "k.py") == []


def test_a_finding_says_where_what_and_the_remedy():
    (finding,) = lint_source(module("@nki.jit\ndef k(a, b):\n    nisa.dma_copy(a, b, mask=1)\n"), "k.py")
    assert str(finding).startswith("k.py:6:25: error NKI016: mask= of nisa.dma_copy has been removed; slice")
    assert (finding.severity, finding.column) == ("error", 25)


def test_a_variable_counts_as_register_only_beyond_doubt():
    assert found(kernel("if n:\n    y = r\nelse:\n    y = 1\nif y:\n    pass")) == []
    assert found(kernel("if n:\n    y = r\nelse:\n    y = s\nif y:\n    pass")) == []
    assert found(kernel("if n:\n    y = r\nelse:\n    return x\nif y:\n    pass")) == [("NKI001", 14)]
    assert found(kernel("y = r\ny = 1\nif y:\n    pass")) == []


def test_a_loop_that_counts_to_a_register_hands_its_body_a_register():
    body = "def body(i):\n    j = i + 1\nnl.fori_loop(0, {}, body)"
    assert found(kernel(body.format("s"))) == []
    assert found(kernel(body.format("r"))) == [("NKI003", 11)]
