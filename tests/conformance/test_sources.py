"""The source of checks as text: what counts as a docstring, and what a check uses."""

from trncheck.conformance import sources, versions
from trncheck.conformance.plugin import HERE

MODULE = '''\
"""A module."""

from trncheck.conformance import bars, compare
from trncheck.conformance.parity import hold

LIMIT = 3
"""The limit."""
TEXT = """not a
docstring"""


class Box:
    """A box."""

    size: int = 1
    """How large."""


@property
def check(x):
    """The claim.

    Why: it matters.
    """

    def inner():
        """Inside."""
        return """kept"""

    return helper(inner()) + LIMIT


def helper(x):
    return x
'''


def test_docstrings_go_and_other_texts_stay():
    left = sources.without_docstrings(MODULE)
    for gone in ("The claim", "it matters", "A box", "How large", "Inside"):
        assert gone not in left
    assert 'return """kept"""' in left
    assert 'TEXT = """not a\ndocstring"""' in left


def test_definition_is_the_same_with_a_docstring_and_without():
    bare = MODULE.replace('    """The claim.\n\n    Why: it matters.\n    """\n\n', "")
    assert bare != MODULE
    assert sources.definitions(bare) == sources.definitions(MODULE)
    assert sources.definitions(MODULE)["check"].startswith("@property\ndef check(x):\n    def inner():\n        return")
    assert sources.definitions(MODULE)["Box"] == "class Box:\n    size: int = 1\n"


def test_function_of_a_docstring_alone_is_a_definition():
    assert sources.definitions('def f():\n    """Nothing."""\n\n\nX = 1\n') == {"f": "def f():\n", "X": "X = 1\n"}


def test_used_are_definitions_that_are_named_directly_or_not():
    pool = {"a": "b + 1", "b": "2", "c": "a", "d": "d"}
    assert sources.used("return a", pool) == {"a": "b + 1", "b": "2"}
    assert sources.used("return d + aa", pool) == {"d": "d"}


def test_modules_that_a_module_imports_from():
    assert sources.imported(MODULE) == {"bars", "compare", "parity"}


def test_shared_modules_exist():
    assert all((HERE / f"{name}.py").is_file() for name in sources.SHARED)


def test_version_of_a_kernel_check_follows_its_comparison():
    from trncheck.conformance import test_kernels

    code = versions._code_of(test_kernels.test_forward)
    assert "KERNEL_FACTOR" in code
    assert "kernel_compare" in {module.__name__.split(".")[-1] for module in versions._shared(test_kernels)}
    assert "def hold_bits" in versions._code_of(test_kernels.test_repeated)
