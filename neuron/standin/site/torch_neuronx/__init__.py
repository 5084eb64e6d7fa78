"""trncheck's stand-in for torch-neuronx: device "neuron" whose work is done on the CPU, for rehearsals alone.

Names and signatures are those that are documented or known of the native torch-neuronx; what they do on Trainium,
this says nothing about. It loads nowhere but in a rehearsal.
"""

import os
from pathlib import Path

_SITE = Path(__file__).resolve().parent.parent
if Path(os.environ.get("TRNCHECK_REHEARSAL", os.devnull)).resolve() != _SITE.parent:
    raise ImportError(f"{_SITE} is trncheck's stand-in for Neuron software, for trncheck run --rehearse alone")


def _autoload() -> None:
    """What the entry point of group ``torch.backends`` names: ``import torch`` ends with this call."""
    from torch_neuronx import registration

    registration.register()


import torch  # noqa: E402  which calls _autoload() where this module is imported first

_autoload()

import nki  # noqa: E402  as the real one does: without nki nothing works

from torch_neuronx import _standin  # noqa: E402
from torch_neuronx._standin import clear_operators as clear_op_tracking  # noqa: E402
from torch_neuronx._standin import executed_operators as get_executed_ops  # noqa: E402
from torch_neuronx._standin import fallen_back_operators as get_fallback_ops  # noqa: E402
from torch_neuronx.neuron import (  # noqa: E402
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_peak_memory_stats,
)
from torch_neuronx.nki_hop import nki_op, wrap_nki  # noqa: E402


def get_dynamo_metrics() -> list[str]:
    """A graph for every operator that has run, as if each were compiled at its first use."""
    return list(_standin.executed_operators())


__version__ = "stand-in"
__all__ = [
    "clear_op_tracking",
    "get_dynamo_metrics",
    "get_executed_ops",
    "get_fallback_ops",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "nki",
    "nki_op",
    "reset_peak_memory_stats",
    "torch",
    "wrap_nki",
]

from torch_neuronx import variant  # noqa: E402, F401  what this rehearsal has different
