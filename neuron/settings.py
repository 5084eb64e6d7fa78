"""Environment variables that matter for training on Neuron: what they do, what a run sets, what contradicts what.

Sources: ``torch-neuronx`` is the reference of its variables, read for 2.33 as far as it was public; ``pre-release`` and
``third party`` say that a name was only seen there, so that it may have no effect.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from trncheck.neuron import cores
from trncheck.neuron.machine import Machine

_DOCS = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest"
_TORCH = f"{_DOCS}/torch/reference/env-vars.html"
_RUNTIME = f"{_DOCS}/neuron-runtime/api/nrt-env-var-reference.html"
_COMPILER = f"{_DOCS}/compiler/neuronx-cc/api-reference-guide/index.html"
_SIMULATOR = f"{_DOCS}/nki/guides/nki_simulator.html"
_LNC = f"{_DOCS}/about-neuron/arch/neuron-features/logical-neuroncore-config.html"
_XLA = f"{_DOCS}/frameworks/torch/torch-neuronx/api-reference-guide/training/torch-neuron-envvars.html"
_PRE_RELEASE = "pre-release of torch-neuronx, April 2026"
_THIRD_PARTY = "third party"
_OFF = ("0", "false", "no")
_ON = ("1", "true", "yes")
_UNKNOWN = "unknown"


class Setting(NamedTuple):
    """One variable."""

    name: str
    what: str
    default: str
    """In words; ``unknown`` where no public source says."""
    source: str
    ours: str = ""
    """What a run sets where the user has not; below the run's folder where it begins with ``./``."""
    why: str = ""
    """Why a run does not rely on the default."""
    demanded: tuple[str, ...] = ()
    """Values under which a result means what the report says; empty where any will do."""
    harm: str = ""
    """What any other value does."""


class Row(NamedTuple):
    """What ``trncheck doctor`` shows of a setting."""

    name: str
    value: str
    default: str
    what: str
    ours: str
    """What a run sets, with its reason; empty where it sets nothing."""


SETTINGS = (
    Setting(cores.LNC, "physical cores per logical core, 1 or 2", "2 on Trainium2", _LNC),
    Setting("NEURON_RT_VIRTUAL_CORE_SIZE", f"earlier name of {cores.LNC}", "unset", _THIRD_PARTY),
    Setting(
        cores.VISIBLE,
        "cores that a process reserves, for example 5 or 4-7",
        "unset: all, for this process alone",
        _RUNTIME,
    ),
    Setting(cores.NUMBER, "how many cores a process reserves", "0: all", _RUNTIME),
    Setting(
        "NEURON_RT_STOCHASTIC_ROUNDING_EN",
        "1 rounds at random, 0 to nearest even",
        _UNKNOWN,
        f"{_DOCS}/about-neuron/arch/neuron-features/rounding-modes.html",
        "0",
        "its default under TorchNeuron is not published",
        _OFF,
        "rounds at random, so that no two runs and no reference agree",
    ),
    Setting(
        "NEURON_RT_EXEC_TIMEOUT",
        "seconds that one execution may take",
        "30, or 2: the runtime's guide names both",
        f"{_DOCS}/neuron-runtime/guides/configuration-guide.html",
        "600",
        "in the first step a rank waits in a collective for the rank that compiles longest",
    ),
    Setting("NEURON_RT_ROOT_COMM_ID", "where ranks meet, as address:port", "unset: MASTER_ADDR", _RUNTIME),
    Setting("NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS", "executions under way at once", "0", _RUNTIME),
    Setting("NEURON_RT_INSPECT_ENABLE", "1 profiles every execution, so that durations mean nothing", "0", _RUNTIME),
    Setting("NEURON_LAUNCH_BLOCKING", "1 waits for every operator, to find the one that fails", "0", _PRE_RELEASE),
    Setting("NEURON_CC_FLAGS", "flags for neuronx-cc", "unset", _COMPILER),
    Setting("NEURON_COMPILER_OPT_LEVEL", "optimisation by neuronx-cc; may move numbers", "-O1", _PRE_RELEASE),
    Setting(
        "NEURON_PLATFORM_TARGET_OVERRIDE",
        "chip that is compiled for and simulated",
        "the chip that is there, else trn3",
        _SIMULATOR,
        "trn2",
        "without a chip NKI takes trn3",
        ("trn2", "gen3"),
        "compiles for and simulates another chip than Trainium2",
    ),
    Setting(
        "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION",
        "1: a graph that does not compile is an error, 0: it runs eagerly without a word",
        "1 in 2.33, 0 in pre-releases",
        _TORCH,
        "1",
        "its default flipped",
        _ON,
        "lets graphs that do not compile run eagerly, so that nothing compiled is tested",
    ),
    Setting(
        "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS",
        "1: an operator that fails on the device is an error, 0: it is computed again on the CPU",
        "0",
        _PRE_RELEASE,
        "1",
        "an operator that fails must not pass by way of the CPU",
        _ON,
        "lets operators that fail on the device pass by way of the CPU",
    ),
    Setting("TORCH_NEURONX_COMPLEX_DECOMPOSE", "splits complex operators before lowering", "1 from 2.13 on", _TORCH),
    Setting("TORCH_NEURONX_ATEN_GMM_ALIGN", "rows to which grouped matmuls are padded", "128", _PRE_RELEASE),
    Setting(
        "TORCH_NEURONX_DEBUG_DIR",
        "where graphs and executables of the compiler go",
        "/tmp/neuron_backend",
        _TORCH,
        "./neuron-debug",
        "runs of one host share it",
    ),
    Setting("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1 keeps these", "0", _TORCH),
    Setting(
        "TORCH_NEURONX_NEFF_CACHE_DIR",
        "cache of executables, for hosts that share it",
        "/tmp/neff_cache",
        _PRE_RELEASE,
        "./neff-cache",
        "a stale executable can hide a defect, or be one",
    ),
    Setting(
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR",
        "cache of executables of this host",
        "/tmp/local_cache",
        _PRE_RELEASE,
        "./neff-local-cache",
        "a stale executable can hide a defect, or be one",
    ),
    Setting("TORCH_NEURONX_NEFF_DISABLE_CACHE", "1 compiles everything anew", "0", _PRE_RELEASE),
    Setting(
        "NKI_COMPILE_CACHE_URL",
        "cache of compiled NKI kernels",
        _UNKNOWN,
        _THIRD_PARTY,
        "./nki-cache",
        "a stale kernel can hide a defect, or be one",
    ),
    Setting(
        "NKI_SIMULATOR",
        "1 runs NKI kernels on the CPU simulator",
        "0",
        _SIMULATOR,
        demanded=_OFF,
        harm="runs every NKI kernel on the CPU, so that no result is the device's",
    ),
    Setting("NKI_PRECISE_FP", "0 lets the simulator keep low precision as fp32", "1 since NKI 0.4.0", _SIMULATOR),
    Setting("NKILIB_FORCE_BUNDLED_LIBRARY", "true prefers nkilib of neuronx-cc to nki-library", "false", _THIRD_PARTY),
    Setting(
        "NKILIB_USE_TORCH_REF",
        "1 runs torch references in place of nkilib's kernels",
        "0",
        _THIRD_PARTY,
        demanded=_OFF,
        harm="runs torch in place of nkilib's kernels, so that none of them is tested",
    ),
)
"""In the order of the table that users see."""

FLAGS = (
    Setting(
        "--auto-cast", "what the compiler casts to lower precision", "none since SDK 2.27, matmult before", _COMPILER
    ),
    Setting(
        "--logical-nc-config", "physical cores per logical core that are compiled for", "2 on Trainium2", _COMPILER
    ),
    Setting("--target", "chip that is compiled for", "set by torch-neuronx", _COMPILER),
    Setting(
        "--native-int64",
        "runs 64-bit integers as such",
        "disabled in 2.27; enabled from 2.28 on, as announced",
        _COMPILER,
    ),
    Setting(
        "--implicit-integer-downcast",
        "operators that may cut 64 bit to 32",
        "all in 2.27; none from 2.28 on, as announced",
        _COMPILER,
    ),
)
"""Flags in NEURON_CC_FLAGS. A run sets none: a flag that an older neuronx-cc does not know ends every compilation."""

XLA_ERA = (
    "NEURONCORE_GROUP_SIZES",
    "NEURON_COMPILE_CACHE_URL",
    "NEURON_EXTRACT_GRAPHS_ONLY",
    "NEURON_FRAMEWORK_DEBUG",
    "NEURON_NUM_RECENT_MODELS_TO_KEEP",
    "PJRT_DEVICE",
    "XLA_DOWNCAST_BF16",
    "XLA_USE_BF16",
)
"""Variables of the PyTorch/XLA line, which the native one is not documented to read."""


def explicit(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Variables to add to the environment of one run, by name; what ``environ`` has is left alone.

    Caches and what the compiler leaves go below ``folder``, one for each run, where their folders are made.
    """
    added = {setting.name: setting.ours for setting in SETTINGS if setting.ours and setting.name not in environ}
    for name, value in added.items():
        if value.startswith("./"):
            added[name] = str((folder / value).resolve())
            Path(added[name]).mkdir(parents=True, exist_ok=True)
    return added


def conflicts(environ: Mapping[str, str], machine: Machine) -> list[str]:
    """What of ``environ`` contradicts itself, the machine, or what a run has to mean: one line each with the remedy."""
    try:
        flags, unreadable = _flags(environ), []
    except ValueError as error:
        flags = []
        unreadable = [f"NEURON_CC_FLAGS={environ['NEURON_CC_FLAGS']!r} cannot be split into flags: {error}; quote it"]
    return [
        *unreadable,
        *_lnc_conflicts(environ, machine, flags),
        *_core_conflicts(environ, machine),
        *_harmful(environ, machine, flags),
        *_left_over(environ),
    ]


def describe(environ: Mapping[str, str]) -> list[Row]:
    """Every setting as ``environ`` has it; variables of the PyTorch/XLA line only where they are set."""
    try:
        flags = _flags(environ)
    except ValueError:
        flags = []
    rows = []
    for setting in SETTINGS:
        ours = f"{setting.ours}: {setting.why}" if setting.ours else ""
        rows.append(Row(setting.name, environ.get(setting.name, "unset"), setting.default, setting.what, ours))
        if setting.name == "NEURON_CC_FLAGS":
            for flag in FLAGS:
                given = [value for name, value in flags if name == flag.name]
                rows.append(Row(flag.name, " ".join(given) or "unset", flag.default, flag.what, ""))
    left_over = (name for name in XLA_ERA if name in environ)
    return rows + [Row(name, environ[name], "unset", "belongs to the PyTorch/XLA line", "") for name in left_over]


def _flags(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Flags of NEURON_CC_FLAGS with their values, in order; LNC under its long name. ValueError for a lone quote."""
    words = shlex.split(environ.get("NEURON_CC_FLAGS", ""))
    found = []
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            name = "--logical-nc-config" if name in ("-lnc", "--lnc") else name
            found.append((name, value if equals else "" if following.startswith("-") else following))
    return found


def _lnc_conflicts(environ: Mapping[str, str], machine: Machine, flags: list[tuple[str, str]]) -> Iterator[str]:
    try:
        runtime = cores.lnc(environ)
    except ValueError as error:
        yield str(error)
        return
    if cores.LNC not in environ and machine.lnc in (1, 2) and machine.lnc != runtime:
        yield (
            f"{cores.LNC} is unset, and this machine runs at LNC {machine.lnc} ({machine.lnc_source}), not at the "
            f"default {runtime}; export {cores.LNC}={machine.lnc}"
        )
        runtime = machine.lnc
    set_to = f"{cores.LNC}={runtime}" + ("" if cores.LNC in environ else ", its default,")
    for value in (value for name, value in flags if name == "--logical-nc-config"):
        if value != str(runtime):
            yield (
                f"the runtime has {set_to} and NEURON_CC_FLAGS compiles for LNC {value or 'nothing'}; the two must "
                "agree, so leave the flag out"
            )
    older = environ.get("NEURON_RT_VIRTUAL_CORE_SIZE")
    if older and older != str(runtime):
        yield (
            f"NEURON_RT_VIRTUAL_CORE_SIZE={older} is the earlier name of {cores.LNC}, here {runtime}; unset the former"
        )


def _core_conflicts(environ: Mapping[str, str], machine: Machine) -> Iterator[str]:
    try:
        available = machine.logical_cores_at(cores.lnc(environ))
    except ValueError:
        return  # said already
    try:
        # Where the machine's cores are not known, any number that can be written is.
        cores.allowed(environ, _ANY_CORE if available is None else available)
    except ValueError as error:
        yield str(error)


_ANY_CORE = 10_000


def _harmful(environ: Mapping[str, str], machine: Machine, flags: list[tuple[str, str]]) -> Iterator[str]:
    for setting in SETTINGS:
        value = environ.get(setting.name, "").strip()
        simulated = setting.name == "NKI_SIMULATOR" and not machine.files  # the only way to run nki without a device
        if value and setting.demanded and value.lower() not in setting.demanded and not simulated:
            yield f"{setting.name}={value} {setting.harm}; unset it, or set {setting.demanded[0]}"
    for name, value in flags:
        if name == "--auto-cast" and value != "none":
            yield (
                f"--auto-cast {value} in NEURON_CC_FLAGS casts to lower precision behind the model's back; leave it "
                "out, or write --auto-cast=none"
            )
        if name == "--target" and value not in ("trn2", "gen3"):
            yield f"--target {value} in NEURON_CC_FLAGS compiles for another chip than Trainium2; leave it out"


def _left_over(environ: Mapping[str, str]) -> Iterator[str]:
    if root := environ.get("NEURON_RT_ROOT_COMM_ID"):
        yield (
            f"NEURON_RT_ROOT_COMM_ID={root} is left over from another job; ranks would meet there and not at "
            "MASTER_ADDR, so unset it"
        )
    if names := [name for name in XLA_ERA if name in environ]:
        yield (
            f"{', '.join(names)} belong{'s' * (len(names) == 1)} to the PyTorch/XLA line, which the native "
            f"torch-neuronx replaces; unset {' '.join(names)}"
        )
