"""Calls of `nki.isa` and `nki.language`: signatures, enums, buffers, and what has been removed."""

import ast
from collections.abc import Iterator

from trncheck.kernels.simulator.lint.source import Problem, Source
from trncheck.kernels.simulator.signatures import COMMON_KEYWORDS, ENUMS, ISA, LANGUAGE, Signature

_ISA = "nki.isa."
_LANGUAGE = "nki.language."

_REMOVED = {
    "nki.language.arange": "slice the tensor, or give a pattern to .ap()",
    "nki.language.mgrid": "slice the tensor, or give a pattern to .ap()",
    "nki.language.par_dim": "give the plain size: dimension 0 of an on-chip tensor is the partition dimension",
    "nki.isa.tensor_copy_dynamic_src": "nisa.tensor_copy with src=tensor.ap(..., scalar_offset=...)",
    "nki.isa.tensor_copy_dynamic_dst": "nisa.tensor_copy with dst=tensor.ap(..., scalar_offset=...)",
}
_REMOVED_ARGUMENTS = {
    ("nki.isa.dma_copy", "dst_rmw_op"): "use nisa.dma_compute",
    ("nki.isa.dma_copy", "unique_indices"): "use nisa.dma_compute, which has it",
    ("nki.isa.sendrecv", "use_gpsimd_dma"): "give dma_engine=nisa.dma_engine.gpsimd_dma",
    ("nki.isa.register_move", "imm"): "give the value as src",
}
_MASK = "slice to the part that is valid, or use nisa.affine_select"


def check(source: Source) -> Iterator[Problem]:
    for unit in source.units.values():
        for node in source.mentions(unit):
            name = source.dotted(node, unit)
            if name in _REMOVED:
                yield "NKI015", node, f"{_short(name)} has been removed; instead: {_REMOVED[name]}"
        for call, name in source.calls(unit):
            if not name.startswith((_ISA, _LANGUAGE)) or name in _REMOVED:
                continue
            signature = _signature(name)
            removed = {k for k in call.keywords if k.arg == "mask" or (name, k.arg) in _REMOVED_ARGUMENTS}
            for keyword in removed:
                remedy = _REMOVED_ARGUMENTS.get((name, keyword.arg), _MASK)
                yield "NKI016", keyword, f"{keyword.arg}= of {_short(name)} has been removed; {remedy}"
            yield from _enums(call, name, signature)
            yield from _buffers(call, name)
            if signature:
                yield from _binding(call, _short(name), signature, removed)
                yield from _old_order(call, name)


def _short(name: str) -> str:
    return name.replace(_ISA, "nisa.").replace(_LANGUAGE, "nl.")


def _signature(name: str) -> Signature | None:
    return ISA.get(name.removeprefix(_ISA)) if name.startswith(_ISA) else LANGUAGE.get(name.removeprefix(_LANGUAGE))


def _binding(call: ast.Call, name: str, signature: Signature, removed: set[ast.keyword]) -> Iterator[Problem]:
    known = f"it takes {', '.join(signature.names) or 'no arguments'}"
    for keyword in call.keywords:
        if keyword.arg and keyword not in removed and keyword.arg not in (*signature.names, *COMMON_KEYWORDS):
            yield "NKI012", keyword, f"{name} has no argument {keyword.arg}=; {known}"
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return
    if len(call.args) > len(signature.names):
        yield "NKI014", call.args[len(signature.names)], f"{len(call.args)} positional arguments to {name}; {known}"
    given = {*signature.names[: len(call.args)], *(keyword.arg for keyword in call.keywords)}
    missing = [parameter for parameter in signature.required if parameter not in given]
    if missing and None not in given:
        remedy = "instructions write to dst and return no tensor" if "dst" in signature.required else known
        yield "NKI013", call, f"{name} lacks {', '.join(missing)}; {remedy}"


def _named_arguments(call: ast.Call, signature: Signature | None) -> Iterator[tuple[str, ast.expr]]:
    if signature and not any(isinstance(argument, ast.Starred) for argument in call.args):
        yield from zip(signature.names, call.args, strict=False)
    yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)


def _enums(call: ast.Call, name: str, signature: Signature | None) -> Iterator[Problem]:
    if not name.startswith(_ISA):
        return
    for parameter, value in _named_arguments(call, signature):
        if parameter in ENUMS and isinstance(value, ast.Constant) and isinstance(value.value, int):
            remedy = f"give a member of nisa.{ENUMS[parameter]}"
            yield "NKI011", value, f"{parameter}={value.value!r} of {_short(name)} is no enum member; {remedy}"


def _buffers(call: ast.Call, name: str) -> Iterator[Problem]:
    if not name.startswith(_LANGUAGE):
        return
    for parameter, value in _named_arguments(call, _signature(name)):
        if parameter == "buffer" and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield "NKI010", value, f"buffer={value.value!r} of {_short(name)} is a string; give nl.{value.value}"


def _old_order(call: ast.Call, name: str) -> Iterator[Problem]:
    args = call.args
    if name == "nki.isa.dma_compute" and len(args) > 2 and isinstance(args[2], ast.List | ast.Tuple):
        yield "NKI017", args[2], "nisa.dma_compute takes (dst, srcs, reduce_op, scales); swap scales and the operation"
    if name == "nki.isa.affine_select" and len(args) > 3 and isinstance(args[3], ast.Constant):
        remedy = "give offset by keyword: (dst, pattern, channel_multiplier, on_true_tile, on_false_value)"
        yield "NKI017", args[3], f"nisa.affine_select has a number for on_true_tile; {remedy}"
