"""The lint of NKI sources on whole files: what it judges, its silence about correct kernels, and its command."""

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from trncheck.kernels.simulator import lint, signatures
from trncheck.kernels.simulator.lint import UnreadableSource, lint_file, lint_source
from trncheck.kernels.simulator.lint.__main__ import main


def module(text: str) -> str:
    return "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n" + textwrap.dedent(text)


def found(text: str) -> list[tuple[str, int]]:
    return [(finding.code, finding.line) for finding in lint_source(text, "k.py")]


@pytest.mark.parametrize(
    ("imports", "jit", "language", "isa"),
    [
        ("import nki, nki.isa as nisa, nki.language as nl", "nki.jit", "nl.affine_range", "nisa.memset"),
        ("import nki, nki.isa, nki.language", "nki.jit", "nki.language.affine_range", "nki.isa.memset"),
        ("from nki import isa as i, jit as kernel, language", "kernel()", "language.affine_range", "i.memset"),
        (
            "from nki import jit\nfrom nki.isa import memset\nfrom nki.language import affine_range as r",
            "jit",
            "r",
            "memset",
        ),
    ],
)
def test_names_are_found_under_every_import(imports, jit, language, isa):
    text = f"{imports}\n@{jit}\ndef k(x):\n    for j in {language}(2):\n        {isa}(x)\n"
    assert [code for code, _ in found(text)] == ["NKI111", "NKI013"]


CORRECT = """
import math
from dataclasses import dataclass
from enum import Enum

import torch


class Act(Enum):
    SILU = 0


@dataclass
class Config(nl.NKIObject):
    rows: int = 128
    act: Act = Act.SILU


def tiles(size, tile=nl.tile_size.pmax):
    assert size % tile == 0, f"{size} rows do not fill tiles of {tile}"
    return [(start, min(start + tile, size)) for start in range(0, size, tile)]


def scale(dst, src, bias=None):
    nisa.activation(dst=dst, op=nl.silu, data=src, bias=bias, engine=nisa.engine.scalar, name="scale")


@nki.jit
def kernel(x, w, rows, out=None, config=None, factor: float = 1.0):
    n, d = x.shape
    config = Config(rows=n) if config == None else config
    y = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    table = {"first": 0, "last": math.ceil(n / 128)}
    total = nl.zeros((128, 1), nl.float32, buffer=nl.sbuf)
    kept = []
    for start, end in tiles(n):
        tile = nl.ndarray((128, d), x.dtype, nl.sbuf)
        nisa.dma_copy(tile, x[start:end], oob_mode=nisa.oob_mode.error)
        product = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, stationary=tile, moving=w, accumulate=start > 0)
        scale(tile, product)
        kept.append(tile)
    last = table["last"]
    bound = nisa.scalar_load(rows)

    def body(i):
        tile = nl.ndarray((128, d), x.dtype, buffer=nl.sbuf)
        parts = [nl.ndarray((128, 1), nl.float32) for _ in range(2)]
        parts.append(tile)
        nisa.dma_copy(tile, x.ap([[d, 128], [1, d]], scalar_offset=i * 128 + 1))
        for part in parts[:2]:
            nisa.tensor_tensor(total, total, part, op=nl.add)
        index = 0
        index += 1
        nisa.dma_copy(y.ap([[d, 128], [1, d]], scalar_offset=i), tile)

    nl.fori_loop(0, bound, body, step=1)
    go = nisa.register_alloc(1)

    def again(go):
        nisa.register_load(go, total[0:1, 0:1])
        return go

    nl.while_loop(go, again)
    if out and last > 0 and config.act == Act.SILU:
        nisa.core_barrier(out, (0, 1))
        return y, out
    return y


def run(x, *, lnc=2, seen=[]):
    out = torch.empty_like(x) if x is not None else None
    try:
        return kernel[lnc](x, out), kernel[1](x, out)
    finally:
        seen.append(open)
"""


def test_a_correct_kernel_and_its_host_code_are_clean():
    assert list(map(str, lint_source(module(CORRECT), "k.py"))) == []


def test_a_file_without_kernels_is_not_judged():
    text = module("import time\ndef f(x):\n    time.sleep(nl.arange(x is None))\n")
    assert found(text) == []
    assert found(text + "@nki.jit\ndef k(x):\n    return x\n") == []


def test_code_that_a_kernel_reaches_is_judged():
    text = module("""
        import time
        def inner():
            return time.time()
        def outer():
            return inner
        class C(nl.NKIObject):
            def m(self):
                return time.time()
        def made():
            @nki.jit
            def k(x):
                return outer(), C()
            return k
        def host():
            return time.time()
    """)
    assert found(text) == [("NKI030", 7), ("NKI030", 12)]


def test_reading_needs_neither_numpy_nor_torch():
    files = [*Path(lint.__file__).parent.glob("*.py"), Path(signatures.__file__)]
    for tree in (ast.parse(path.read_text()) for path in files):
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        names = {getattr(n, "module", None) or n.names[0].name for n in imports}
        assert {name.split(".")[0] for name in names} <= {*sys.stdlib_module_names, "trncheck"}


def test_signatures_are_consistent():
    for signature in (*signatures.ISA.values(), *signatures.LANGUAGE.values()):
        assert len(set(signature.names)) == len(signature.names)
    assert signatures.ISA["dma_copy"].names == ("dst", "src", "priority", "oob_mode", "dge_mode", "engine")
    assert set(signatures.ENUMS) <= {name for s in signatures.ISA.values() for name in s.names}


@pytest.fixture
def sources(tmp_path):
    texts = {
        "good.py": module("@nki.jit\ndef k(x):\n    return x\n"),
        "warned.py": module("@nki.jit(mode='trace')\ndef k(x):\n    return x\n"),
        "bad.py": module("@nki.jit\ndef k(x):\n    return nl.arange(4)\n"),
        "broken.py": "x = 1\ndef k(:\n",
        "null.py": "x = 1\0\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("names", "status", "lines"),
    [
        (["good.py"], 0, []),
        (["warned.py"], 0, ["warned.py:4:10: warning NKI110"]),
        (["warned.py", "bad.py", "good.py"], 1, ["warned.py:4:10: warning NKI110", "bad.py:6:12: error NKI015"]),
        (["broken.py", "bad.py"], 2, ["bad.py:6:12: error NKI015"]),
    ],
)
def test_command_prints_findings(names, status, lines, sources, capsys):
    assert main([str(sources / name) for name in names]) == status
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(lines)
    assert all(line.startswith(f"{sources}/{start}: ") for line, start in zip(printed, lines, strict=True))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("broken.py", "broken.py:2: invalid syntax; correct the syntax first"),
        ("null.py", "null.py:1: source code string cannot contain null bytes; correct the syntax first"),
        ("latin.py", "; save the file as UTF-8"),
        ("missing.py", "missing.py: No such file or directory; give the path of a readable Python file"),
        ("folder", "folder: Is a directory; give the path of a readable Python file"),
    ],
)
def test_command_names_an_unreadable_file_in_one_line(name, line, sources, capsys):
    assert main([str(sources / name)]) == 2
    (printed,) = capsys.readouterr().err.splitlines()
    assert printed.startswith(f"{sources}/{name}:")
    assert printed.endswith(line)
    with pytest.raises(UnreadableSource):
        lint_file(sources / name)


def test_command_runs_as_a_module(sources):
    command = [sys.executable, "-m", "trncheck.kernels.simulator.lint", str(sources / "bad.py")]
    ended = subprocess.run(command, cwd=sources, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "error NKI015: nl.arange has been removed" in ended.stdout
