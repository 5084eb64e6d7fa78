"""Entries of other packages: what is wrong with one is said in one line that names it."""

import itertools

import pytest

from trncheck.kernels import catalogue

_NUMBERS = itertools.count()
SOURCE = """
import torch
from trncheck.kernels import catalogue, operators

def forward(x_PF: torch.Tensor) -> torch.Tensor:
    return 2 * x_PF

{define}

@catalogue.entry(
    operator="{name}::double",
    call=forward,
    reference=lambda x_PF: 2 * x_PF,
    differentiable=("x_PF",),
    shapes={{"one": {{}}}},
)
def entry(shape, dtype, generator):
    return {{"x_PF": torch.randn(4, 4, generator=generator).to(dtype)}}
"""
DEFINE = 'operators.define("{name}::double", forward, fake=torch.empty_like)'


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package of a name that is new, with ``source`` changed from old to new texts; gives its name."""

    def install(*changes, entry="{name}:entry", announced="double", owners=("acme",)):
        name = f"trncheck_tests_{next(_NUMBERS)}"
        source = SOURCE.replace("{define}", DEFINE).format(name=name)
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        (tmp_path / f"{name}.py").write_text(source)
        for owner in owners:
            info = tmp_path / f"{owner}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {owner}\nVersion: 1.0\n")
            text = f"[trncheck.kernels]\n{announced} = {entry.format(name=name)}\n"
            (info / "entry_points.txt").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return install


def refused(name="double") -> str:
    with pytest.raises(ValueError, match="kernel") as error:
        catalogue.load(name)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_good_entry_is_found_among_ours(package):
    name = package()
    assert set(catalogue.names()) >= {"double", "experts", "rope"}
    assert catalogue.load("double").operator == f"{name}::double"


BAD = {
    "differentiable": (
        [('("x_PF",)', '("y_PF",)')],
        "differentiable names 'y_PF', and the reference takes x_PF",
    ),
    "shapes": ([('{"one": {}}', "{}")], "shapes is empty; give at least one"),
    "dtypes": ([('{"one": {}},', '{"one": {}}, dtypes=(),')], "dtypes is empty; give at least one"),
    "dtype": ([('{"one": {}},', '{"one": {}}, dtypes=("bf16",),')], "dtypes: 'bf16' is no dtype's name; write "),
    "namespace": ([('operator="', 'operator="double" or "')], "operator 'double' needs a name of the form"),
    "operator": (
        [('::double",\n', '::doubel",\n')],
        "operator '{name}::doubel' is not registered in torch.ops; define it under that name",
    ),
    "syntax": ([("return 2 * x_PF", "return 2 *")], "{name}.py:6: SyntaxError: invalid syntax"),
    "module code": ([("def forward", "torch.empty(-1)\ndef forward")], "{name}.py:5: RuntimeError: Trying to create"),
    "import": ([("import torch\n", "import torch, no_such_module\n")], "{name}.py:2: ModuleNotFoundError: No module"),
    "annotation": (
        [("x_PF: torch.Tensor", "x_PF")],
        "{name}.py:5: operator '{name}::double': Parameter x_PF must have",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_entry_is_one_line(case, package):
    changes, problem = BAD[case]
    name = package(*changes)
    assert refused().startswith(f"kernel 'double' ({name}:entry): {problem.format(name=name)}")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("no_such_package.double:entry", ": there is no module no_such_package; correct the entry point"),
        ("{name}.double:entry", ": there is no module {name}.double; correct the entry point"),
        ("{name}:entri", ": {name} has no entri; correct the entry point"),
        ("{name}:forward", " is function, not a catalogue entry; decorate it with catalogue.entry"),
    ],
    ids=["package", "module", "attribute", "other"],
)
def test_an_entry_point_that_names_nothing(entry, problem, package):
    name = package(entry=entry)
    assert refused() == f"kernel 'double' ({entry}){problem}".format(name=name)


def test_two_packages_with_one_name_are_both_named(package):
    name = package(owners=("acme", "bravo"))
    assert refused() == (
        f"kernel 'double' is announced more than once: by acme ({name}:entry), bravo ({name}:entry); rename one, or "
        "uninstall it"
    )
