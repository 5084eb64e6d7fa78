"""The lint's stable codes: what each one means and whether the NKI 0.7 compiler refuses it."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Code:
    severity: Severity
    meaning: str


@dataclass(frozen=True, order=True)
class Finding:
    """One statement about one place of a kernel source; lines and columns count from 1."""

    file: str
    line: int
    column: int
    code: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.severity} {self.code}: {self.message}"


def _error(meaning: str) -> Code:
    return Code("error", meaning)


def _warning(meaning: str) -> Code:
    return Code("warning", meaning)


CODES: dict[str, Code] = {
    # registers and dynamic loops
    "NKI001": _error("register or scalar in Python control flow or a boolean context"),
    "NKI002": _error("register or scalar converted to a Python number, or used as a Python index"),
    "NKI003": _error("arithmetic that a register or scalar does not have"),
    "NKI004": _error("nl.dynamic_range, which no longer works"),
    "NKI005": _error("fori_loop step that is not a positive compile-time integer"),
    "NKI006": _error("fori_loop body that returns a value"),
    "NKI007": _error("fori_loop variable that the body writes"),
    "NKI008": _error("while_loop body that does not return the next condition"),
    "NKI009": _error("state that leaves the body of a dynamic loop through Python"),
    # calls
    "NKI010": _error("string in place of a buffer"),
    "NKI011": _error("raw number in place of an enum member"),
    "NKI012": _error("unknown keyword argument"),
    "NKI013": _error("missing required argument"),
    "NKI014": _error("too many positional arguments"),
    "NKI015": _error("removed function"),
    "NKI016": _error("removed argument"),
    "NKI017": _error("arguments in the order of an older release"),
    # imports, launch and outputs
    "NKI020": _error("name from neuronxcc in a kernel"),
    "NKI021": _error("platform_target in nki.jit"),
    "NKI022": _error("launch with more than one grid number, or with one other than 1 or 2"),
    "NKI023": _error("kernel result outside shared HBM"),
    # purity
    "NKI030": _error("time, randomness, environment or files in a kernel"),
    "NKI031": _error("kernel that changes module state"),
    "NKI032": _error("mutable default argument"),
    # the parser frontend of NKI 0.2 to 0.6
    "NKI101": _warning("identity comparison"),
    "NKI102": _warning("bare * in a signature"),
    "NKI103": _warning("list as kernel argument"),
    "NKI104": _warning("class that does not inherit from NKIObject alone"),
    "NKI105": _warning("Python construct outside the parser's subset"),
    "NKI106": _warning("star import"),
    "NKI107": _warning("dict key that is not a string"),
    "NKI108": _warning("NumPy or torch call in a kernel"),
    "NKI109": _warning("kernel decorated with nki.jit that another kernel calls"),
    # deprecated
    "NKI110": _warning("mode in nki.jit, which is ignored"),
    "NKI111": _warning("deprecated range"),
    "NKI112": _warning("deprecated engine constant"),
    "NKI113": _warning("deprecated tile_size attribute"),
}
