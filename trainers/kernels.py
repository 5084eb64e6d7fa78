"""Puts the NKI kernels into the models of all paths, and sees to it that none is left out and that each is executed.

torchtitan's own models take a kernel in their configuration. The Transformers model has no seam for one: its
attention calls a function of its module by name, so each attention instance gets a class whose forward pass finds the
kernel under that name. Nothing is changed for the process.
"""

import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

# isort: split
import functools
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed
from torchtitan.models.common.moe import GroupedExperts
from torchtitan.models.common.rope import CosSinRoPE, RoPE

from trncheck.kernels import counters

_OVERRIDES = {"trncheck.kernels.overrides.nki_rope": "rope", "trncheck.kernels.overrides.nki_experts": "experts"}
_ROTARY = "apply_rotary_pos_emb"
_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.")
"""What activation checkpointing and compilation put into the names of modules."""


@dataclass(kw_only=True, slots=True)
class KernelConfig:
    rope: bool = False
    """Rotate queries and keys with the NKI kernel, on every layer."""

    experts: bool = False
    """Compute the routed experts with the NKI kernels, on every mixture-of-experts layer."""


def attach(config, *, rope: bool = False, experts: bool = False):
    """Ask for kernels in a ``Trainer.Config``, beside those of ``config.kernels``; returns it.

    A native model's configuration is changed here, a Transformers model when it is built.
    """
    wanted = config.kernels
    wanted.rope, wanted.experts = wanted.rope or rope, wanted.experts or experts
    if config.model_spec.name == "transformers_modeling_backend" or not (wanted.rope or wanted.experts):
        return config
    from trncheck.kernels.overrides import nki_experts, nki_rope

    replacements = [(CosSinRoPE.Config, nki_rope)] * wanted.rope
    replacements += [(GroupedExperts.Config, nki_experts)] * wanted.experts
    for target, replace in replacements:
        for _, found, parent, name in list(config.model_spec.traverse(target)):
            setattr(parent, name, replace(found))
    return config


def asked(config) -> set[str]:
    """Operators that ``config`` asks for: ``rope``, ``experts``; by its flags or by override."""
    imports = {entry if isinstance(entry, str) else entry[0] for entry in config.override.imports}
    flags = {name for name in ("rope", "experts") if getattr(config.kernels, name)}
    return flags | {operator for override, operator in _OVERRIDES.items() if override in imports}


# --- the Transformers model


def attach_to_transformers(layers: Iterable[torch.nn.Module], *, rope: bool, experts: bool) -> None:
    """Put the kernels into the decoder layers of torchtitan's Transformers model, before it is parallelized.

    That builds torchtitan's experts from each layer's configuration, so it is enough to change that.
    """
    for layer in layers:
        if rope:
            rotate_with_kernel(layer.self_attn)
        if experts and (moe := getattr(layer, "_native_moe_config", None)):
            from trncheck.kernels.overrides import nki_experts

            moe.routed_experts.inner_experts = nki_experts(moe.routed_experts.inner_experts)


def rotate_with_kernel(attention: torch.nn.Module) -> None:
    """Let this attention module of Transformers rotate with the kernel; no other module is touched.

    Raises ValueError where its forward pass does not call ``apply_rotary_pos_emb``.
    """
    if not _calls_rotary(attention):
        raise ValueError(
            f"{type(attention).__name__}.forward does not call {_ROTARY}, so the rope kernel cannot be put into it; "
            "train it without --kernels.rope"
        )
    attention.__class__ = _rotating_with_kernel(type(attention))


@functools.cache
def _rotating_with_kernel(attention_class: type) -> type:
    """A subclass with the forward pass of ``attention_class``, code and all, for which the rotary function is ours."""
    from trncheck.kernels.rope.layout import apply_rotary_transformers

    forward = attention_class.forward
    own = types.FunctionType(
        forward.__code__,
        forward.__globals__ | {_ROTARY: apply_rotary_transformers},
        forward.__name__,
        forward.__defaults__,
        forward.__closure__,
    )
    own.__kwdefaults__ = forward.__kwdefaults__
    return type(f"Nki{attention_class.__name__}", (attention_class,), {"forward": own})


def _calls_rotary(module: torch.nn.Module) -> bool:
    return _ROTARY in getattr(getattr(type(module).forward, "__code__", None), "co_names", ())


def _rotates_with_kernel(attention: torch.nn.Module) -> bool:
    from trncheck.kernels.rope.layout import apply_rotary_transformers

    return type(attention).forward.__globals__[_ROTARY] is apply_rotary_transformers


# --- the proof


def check_attached(model_parts, operators: set[str]) -> None:
    """Raise ValueError naming every layer of the built model that lacks one of ``operators``, or that none has it."""
    left_out, remedies = [], []
    for operator in sorted(operators):
        found = list(_places(model_parts, operator))
        if not found:
            raise ValueError(
                f"the {operator} kernel was asked for but the model has no layer for it; leave it out, or use a "
                "configuration with such layers"
            )
        without = [f"{name} ({kind})" for name, kind, has_kernel in found if not has_kernel]
        left_out += without
        remedies += [f"--kernels.{operator}"] * bool(without)
    if left_out:
        raise ValueError(
            f"kernels were asked for but {', '.join(left_out)} {'has' if len(left_out) == 1 else 'have'} none; "
            f"{' '.join(remedies)} puts them into every layer, whatever the path"
        )


def _places(model_parts, operator: str) -> Iterator[tuple[str, str, bool]]:
    """Name and class of every module that computes what ``operator`` does, and whether it does so by the kernel."""
    from trncheck.kernels.overrides import NkiExperts, NkiRoPE

    for model in model_parts:
        for full_name, module in model.named_modules():
            name = full_name
            for wrapper in _WRAPPERS:
                name = name.replace(wrapper, "")
            kind = type(module).__name__
            if operator == "experts" and isinstance(module, GroupedExperts):
                yield name, kind, isinstance(module, NkiExperts)
            elif operator == "rope" and isinstance(module, RoPE):
                yield name, kind, isinstance(module, NkiRoPE)
            elif operator == "rope" and _calls_rotary(module):
                yield name, kind, _rotates_with_kernel(module)


class Executions:
    """Counts this rank's kernel executions, step by step."""

    def __init__(self, operators: set[str]):
        self._missing = {(operator, direction) for operator in operators for direction in counters.DIRECTIONS}
        self._before = counters.counts()

    def end_step(self, step: int) -> dict[str, int]:
        """Executions since the last call, by ``operator direction dtype backend``.

        Raises RuntimeError where an operator that was asked for has not been executed both forward and backward.
        """
        now = counters.counts()
        counts = {_shorten(key): number for key in now if (number := now[key] - self._before.get(key, 0))}
        self._before = now
        self._missing -= {tuple(name.split()[:2]) for name in counts}
        if self._missing:
            missing = ", ".join(" ".join(pair) for pair in sorted(self._missing))
            raise RuntimeError(
                f"kernels are attached but never executed on rank {torch.distributed.get_rank()} until the end of step "
                f"{step}: {missing}; executed: {', '.join(counts) or 'none'}"
            )
        return counts


def _shorten(key: counters.Key) -> str:
    return " ".join((key.operator.removeprefix("trncheck::"), *key[1:]))
