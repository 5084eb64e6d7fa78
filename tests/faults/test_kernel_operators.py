"""Faults in the torch operators that wrap the NKI kernels: what they promise torch, take, refuse and hand on."""

import pytest

fault = pytest.mark.fault

ROPE, EXPERTS = "trncheck.kernels.rope.operator", "trncheck.kernels.moe.operator"
BOTH = ("float32", "bfloat16")


@pytest.fixture(autouse=True, scope="module")
def imported():
    """The kernels' modules, once for all children."""
    from trncheck.kernels import catalogue

    return [catalogue.load(name) for name in catalogue.names()]


def _edit(module: str, old: str, new: str, *, dtypes=("float32",)) -> None:
    """Replace ``old``, which occurs once, and give the functions of ``module`` their new code, whoever holds them.

    The check looks at the first shape alone, in ``dtypes``: there the fault shows already.
    """
    import importlib
    import inspect
    from pathlib import Path
    from types import CodeType

    from trncheck.conformance.kernel_runs import KernelRuns

    loaded = importlib.import_module(module)
    text = Path(loaded.__file__).read_text()
    assert text.count(old) == 1, f"{text.count(old)} times in {module}: {old}"
    code = compile(text.replace(old, new), loaded.__file__, "exec")
    for part in (part for part in code.co_consts if isinstance(part, CodeType)):
        inspect.unwrap(getattr(loaded, part.co_name)).__code__ = part
    every = KernelRuns.samples
    KernelRuns.samples = lambda self, kernel: [
        s for s in every(self, kernel) if s.shape == "tiny" and s.dtype in dtypes
    ]


# --- gradients


@fault("kernels.gradient[experts]", "inputs with a gradient: 1 missing: w3_EFD")
def test_no_gradient_for_w3():
    _edit(EXPERTS, "gradients = (dx_RD, None, *dw)", "gradients = (dx_RD, None, *dw[:2], None)")


@fault("kernels.gradient[rope]", "inputs with a gradient: 1 missing: k_BHSD")
def test_no_gradient_for_keys():
    _edit(
        ROPE,
        "return *_rope_backward(dq_BHSD, dk_BHSD, *ctx.saved_tensors), None",
        "return _rope_backward(dq_BHSD, dk_BHSD, *ctx.saved_tensors)[0], None, None",
    )


@fault("kernels.gradient[experts]", "gradient of w1_EFD, relative error")
def test_gradients_of_gate_and_up_swapped():
    _edit(EXPERTS, "gradients = (dx_RD, None, *dw)", "gradients = (dx_RD, None, *dw[::-1])")


@fault("kernels.no_other_gradient[rope]", "cache_BSC gets a gradient: expected False, found True")
def test_gradient_for_the_table():
    from trncheck.kernels.rope import operator

    def gradient(ctx, dq_BHSD, dk_BHSD):
        return *_rope_backward(dq_BHSD, dk_BHSD, *ctx.saved_tensors), ctx.saved_tensors[0]  # noqa: F821

    _edit(ROPE, "if cache_BSC.requires_grad:", "if False:")
    operator._gradient.__code__ = gradient.__code__  # it sees the globals of the operator's module


@fault("kernels.no_other_gradient[experts]", "results need a gradient where no input does")
def test_result_that_always_needs_a_gradient():
    _edit(
        EXPERTS,
        "return _experts(x_RD, num_tokens_per_expert_E, w1_EFD, w2_EDF, w3_EFD)[0]",
        "return _experts(x_RD.detach().requires_grad_(), num_tokens_per_expert_E, w1_EFD, w2_EDF, w3_EFD)[0]",
    )


@fault("kernels.subsets[experts]", "x_RD alone: 1 of 1 tensors differ: x_RD")
def test_no_gradient_of_rows_before_frozen_weights():
    gradients = "gradients = (dx_RD, None, *dw)"
    _edit(EXPERTS, gradients, gradients.replace("dx_RD,", "dx_RD if all(ctx.needs_input_grad[2:]) else 0 * dx_RD,"))


@fault("kernels.subsets[rope]", "tiny float32, without gradients: outputs: 2 of 2 tensors differ")
def test_nothing_rotated_where_no_gradient_is_wanted():
    call = "return _rope(q_BHSD, k_BHSD, cache_BSC)"
    _edit(ROPE, call, f"{call} if torch.is_grad_enabled() else (q_BHSD.clone(), k_BHSD.clone())")


# --- memory


@fault("kernels.layouts[rope]", "upstream gradients sliced: gradients: ")
def test_rope_backward_takes_its_gradient_for_contiguous():
    _edit(
        ROPE,
        'return _launch("backward", dq_BHSD, dk_BHSD, cache_BSC)',
        'return _launch("backward", *(torch.as_strided(g, g.shape, torch.empty(g.shape).stride(), g.storage_offset()) '
        "for g in (dq_BHSD, dk_BHSD)), cache_BSC)",
        dtypes=BOTH,
    )


@fault("kernels.layouts[experts]", "upstream gradients transposed: gradients: 4 of 4 tensors differ")
def test_experts_backward_takes_its_gradient_for_contiguous():
    _edit(
        EXPERTS,
        "for part in (dout_RD, x_RD, gate_RF",
        "for part in (torch.as_strided(dout_RD, dout_RD.shape, (dout_RD.shape[1], 1)), x_RD, gate_RF",
        dtypes=BOTH,
    )


@fault("kernels.layouts[experts]", "w2_EDF transposed: outputs: 1 of 1 tensors differ")
def test_experts_take_weights_for_contiguous():
    _edit(
        EXPERTS,
        "*(part.contiguous() for part in (x_RD, w1_EFD, w2_EDF, w3_EFD)),",
        "*(torch.as_strided(p, p.shape, torch.empty(p.shape).stride()) for p in (x_RD, w1_EFD, w2_EDF, w3_EFD)),",
        dtypes=BOTH,
    )


@fault("kernels.layouts[rope]", "k_BHSD offset in its storage: outputs: 1 of 2 tensors differ")
def test_rope_reads_keys_from_the_start_of_their_storage():
    _edit(
        ROPE,
        "k_BHSD.contiguous(),",
        "torch.as_strided(k_BHSD.contiguous(), k_BHSD.shape, torch.empty(k_BHSD.shape).stride(), 0),",
        dtypes=BOTH,
    )


@fault("kernels.mutation[rope]", "inputs of trncheck.rope_backward.default: 1 of 3 tensors differ: 0")
def test_undeclared_mutation_of_a_gradient():
    _edit(ROPE, 'return _launch("backward", dq_BHSD,', 'return _launch("backward", dq_BHSD.neg_(),')


@fault("kernels.mutation[experts]", "may not alias any inputs")
def test_output_in_the_memory_of_an_input():
    _edit(EXPERTS, "return dx_RD, *(gradient", "return x_RD.detach().copy_(dx_RD), *(gradient")


# --- promises to torch


@fault("kernels.registration[rope]", "may not alias")
def test_operator_that_returns_its_input():
    _edit(ROPE, 'return _launch("forward", q_BHSD, k_BHSD, cache_BSC)', "return q_BHSD, k_BHSD")


@fault("kernels.registration[experts]", "test_schema: expected 'SUCCESS'")
def test_operator_that_changes_its_input():
    _edit(EXPERTS, "_check_counts(num_tokens_per_expert_E, len(x_RD))", "x_RD.neg_()")


@fault("kernels.registration[experts]", "trncheck.experts_backward.default, test_faketensor: expected 'SUCCESS'")
def test_fake_gradient_of_another_shape():
    _edit(EXPERTS, "part.new_empty(part.shape) for part in", "part.new_empty(part.shape[::-1]) for part in")


@fault("kernels.fake[experts]", "trncheck.experts.default: expected")
def test_fake_with_other_strides():
    _edit(EXPERTS, "return x_RD.new_empty(x_RD.shape), x", "return x_RD.new_empty(x_RD.shape[::-1]).T, x")


@fault("kernels.fake[experts]", "tiny bfloat16, trncheck.experts_backward.default: expected")
def test_fake_gradients_in_fp32():
    _edit(
        EXPERTS, "part.new_empty(part.shape) for part in", "part.new_empty(part.shape).float() for part in", dtypes=BOTH
    )


@fault("kernels.fake[rope]", "tiny bfloat16, trncheck.rope.default: expected")
def test_fake_with_another_dtype():
    _edit(
        ROPE,
        "return q_BHSD.new_empty(q_BHSD.shape), k_BHSD.new_empty(k_BHSD.shape)",
        "return q_BHSD.new_empty(q_BHSD.shape), "
        "k_BHSD.new_empty(k_BHSD.shape).to(torch.float32 if hasattr(q_BHSD, 'fake_mode') else k_BHSD.dtype)",
        dtypes=BOTH,
    )


# --- limits


@fault("kernels.refused[experts]", "mixed dtypes: ")
def test_dtypes_not_looked_at():
    _edit(EXPERTS, "if len(set(dtypes)) > 1 or dtypes[0] not in DTYPES:", "if False:")


@fault("kernels.refused[experts]", "more rows than there are: accepted")
def test_counts_not_looked_at():
    _edit(EXPERTS, "if min(counts, default=0) < 0 or sum(counts) > rows:", "if False:")


@fault("kernels.refused[experts]", "negative counts: accepted")
def test_sign_of_counts_not_looked_at():
    _edit(EXPERTS, "min(counts, default=0) < 0 or ", "")


@fault("kernels.refused[rope]", "mixed dtypes: accepted")
def test_keys_cast_without_a_word():
    _edit(ROPE, "if q_BHSD.dtype != k_BHSD.dtype or q_BHSD.dtype not in DTYPES:", "if False:")


# --- precision


@fault("kernels.forward[rope]", "tiny float32, LNC 1, output 0, relative error")
def test_table_rounded_to_bfloat16():
    _edit(ROPE, "q_BHSD.shape[2], :].float()", "q_BHSD.shape[2], :].bfloat16().float()")
