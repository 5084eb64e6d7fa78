"""Definition of operators, and the kit's operators as a training step uses them."""

import itertools
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from trncheck.kernels import counters
from trncheck.kernels.moe.operator import EXPERTS, experts
from trncheck.kernels.moe.reference import experts_reference
from trncheck.kernels.operators import define
from trncheck.kernels.rope.operator import ROPE, rope

E, D, F = 4, 64, 96
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
_NUMBERS = itertools.count()


@pytest.fixture
def name():
    """A name that no operator has yet."""
    return f"trncheck_tests::operator_{next(_NUMBERS)}"


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def define_sine(name):
    return define(
        name,
        sine,
        fake=lambda x: x.new_empty(x.shape),
        backward=lambda ctx, dy: dy * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )


def expert_inputs(dtype=torch.float32, counts=(3, 0, 130, 1), unrouted=5):
    """x, counts, w1, w2, w3; without ``unrouted`` rows every row belongs to an expert."""
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape, scale=1.0):
        return (torch.randn(shape, generator=generator) * scale).to(dtype).requires_grad_()

    x_RD = leaf(sum(counts) + unrouted, D)
    weights = leaf(E, F, D, scale=D**-0.5), leaf(E, D, F, scale=F**-0.5), leaf(E, F, D, scale=D**-0.5)
    return x_RD, torch.tensor(counts), *weights


def rope_inputs(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, heads, 256, 16, generator=generator).to(dtype).requires_grad_() for heads in (2, 1))
    return q, k, torch.rand(1, 256, 32, generator=generator)


def detached(tensors):
    return [tensor.detach() for tensor in tensors]


# --- definition


def test_operator_of_a_third_party(name):
    op = define_sine(name)
    x = torch.randn(3, requires_grad=True)
    namespace, operator = name.split("::")
    assert getattr(getattr(torch.ops, namespace), operator)(x).equal(x.sin())
    torch.autograd.gradcheck(op, x.detach().double().requires_grad_())
    torch.library.opcheck(op, (x,))


def test_taken_name_is_refused(name):
    define_sine(name)
    place = r"test_operators.py:\d+"
    with pytest.raises(ValueError, match=f"^{place}: operator '{name}' is registered already by {place}; choose"):
        define_sine(name)


@pytest.mark.parametrize("bad", ["sine", "::sine", "tests::", "a.b::sine"])
def test_name_needs_a_namespace(bad):
    with pytest.raises(ValueError, match="of the form namespace::operator"):
        define_sine(bad)


def annotated_with_list(x: list) -> torch.Tensor:
    return x[0]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: x.sin(), "Parameter x must have a type annotation."),
        (annotated_with_list, "Parameter x has unsupported type <class 'list'>."),
    ],
    ids=["none", "list"],
)
def test_function_needs_annotations(name, function, problem):
    with pytest.raises(ValueError, match=r"annotation|type") as refused:
        define(name, function, fake=torch.empty_like)
    line = function.__code__.co_firstlineno
    assert str(refused.value) == f"test_operators.py:{line}: operator '{name}': {problem}"


@pytest.mark.parametrize("alias", [lambda x: x, lambda x: x[1:]], ids=["itself", "view"])
def test_result_that_is_an_argument_is_an_error(name, alias):
    def function(x: torch.Tensor) -> torch.Tensor:
        return alias(x)

    op = define(name, function, fake=torch.empty_like)
    with pytest.raises(RuntimeError, match="may not alias any inputs"):
        op(torch.randn(3))


@pytest.fixture
def torch_neuronx(monkeypatch, tmp_path):
    """A package that registers operators as TorchNeuron is thought to: as ``torch.library.triton_op`` does."""
    (tmp_path / "torch_neuronx.py").write_text(
        "import torch\ncalls = []\n"
        "def nki_op(name, fn=None, mutates_args={}):\n"
        "    calls.append((name, mutates_args))\n"
        "    return torch.library.triton_op(name, fn, mutates_args=mutates_args)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch_neuronx", raising=False)
    yield lambda: sys.modules["torch_neuronx"]
    sys.modules.pop("torch_neuronx", None)


def test_torch_neuronx_registers_where_it_can(torch_neuronx, name):
    op = define_sine(name)
    assert torch_neuronx().calls == [(name, {})]
    x = torch.randn(3, requires_grad=True)
    torch.autograd.gradcheck(op, x.detach().double().requires_grad_())
    assert op(torch.empty(5, device="meta")).shape == (5,)
    with FakeTensorMode():
        assert op(torch.empty(5)).shape == (5,)


@pytest.mark.usefixtures("torch_neuronx")
def test_graph_capture_finds_the_computation_behind_the_fake(name):
    op = define_sine(name)
    graphs = []

    def keep(graph, _inputs):
        graphs.append(graph.code)
        return graph

    from torch._dynamo.backends.common import aot_autograd

    x = torch.randn(3)
    compiled = torch.compile(lambda x: op(x), backend=aot_autograd(fw_compiler=keep), fullgraph=True)
    assert compiled(x).equal(x.sin())
    assert "aten.sin" in graphs[0]


def test_torch_neuronx_without_nki_op_is_passed_by(monkeypatch, tmp_path, name):
    (tmp_path / "torch_neuronx.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch_neuronx", raising=False)
    x = torch.randn(3)
    assert define_sine(name)(x).equal(x.sin())
    sys.modules.pop("torch_neuronx")


# --- the kit's operators


@DTYPES
def test_rope_is_registered_right(dtype):
    arguments = rope_inputs(dtype)
    torch.library.opcheck(torch.ops.trncheck.rope, arguments)
    torch.library.opcheck(torch.ops.trncheck.rope_backward, detached(arguments))


@DTYPES
def test_experts_are_registered_right(dtype):
    arguments = expert_inputs(dtype, unrouted=0)
    torch.library.opcheck(torch.ops.trncheck.experts, arguments)
    _, gate_RF, up_RF = torch.ops.trncheck.experts(*detached(arguments))
    x_RD, *rest = detached(arguments)
    torch.library.opcheck(torch.ops.trncheck.experts_backward, (torch.ones_like(x_RD), x_RD, gate_RF, up_RF, *rest))


def error(actual, truth) -> float:
    assert actual.shape == truth.shape
    return ((actual.double() - truth).norm() / truth.norm()).item()


def run(function, arguments, cotangent):
    out = function(*arguments)
    x_RD, _, *weights = arguments
    return out, *torch.autograd.grad(out, (x_RD, *weights), cotangent.to(out.dtype))


@DTYPES
@pytest.mark.parametrize("unrouted", [0, 5])
def test_experts_are_as_good_as_plain_torch(dtype, unrouted):
    arguments = expert_inputs(dtype, unrouted=unrouted)
    cotangent = torch.randn(D, len(arguments[0])).T  # transposed
    x_RD, counts, *weights = detached(arguments)
    doubles = [part.double().requires_grad_() for part in (x_RD, *weights)]
    results = [run(function, arguments, cotangent.to(dtype)) for function in (experts, experts_reference)]
    truth = run(experts_reference, (doubles[0], counts, *doubles[1:]), cotangent.to(dtype))
    for name, ours, plain, true in zip(("out", "dx", "dw1", "dw2", "dw3"), *results, truth, strict=True):
        assert ours.dtype == dtype
        assert error(ours, true) <= 1.5 * error(plain, true), name
    if unrouted:
        assert results[0][0][-unrouted:].count_nonzero() == results[0][1][-unrouted:].count_nonzero() == 0
    assert all(gradient[1].count_nonzero() == 0 for gradient in results[0][2:])  # the expert without rows


def test_unneeded_gradients_are_not_given():
    x_RD, counts, w1_EFD, w2_EDF, w3_EFD = expert_inputs()
    experts(x_RD, counts, w1_EFD.detach(), w2_EDF, w3_EFD.detach()).sum().backward()
    assert x_RD.grad is not None
    assert w2_EDF.grad is not None
    assert w1_EFD.grad is w3_EFD.grad is None


def test_gradient_through_saved_activations_is_an_error():
    _, gate_RF, up_RF = torch.ops.trncheck.experts(*expert_inputs())
    for part in (gate_RF, up_RF):
        with pytest.raises(RuntimeError, match="does not require grad"):
            part.sum().backward()


def test_second_derivative_is_an_error():
    arguments = expert_inputs()
    (dx_RD,) = torch.autograd.grad(experts(*arguments).sum(), arguments[0], create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        dx_RD.sum().backward()


def test_no_rows_no_launch():
    arguments = expert_inputs(counts=(0, 0, 0, 0), unrouted=0)
    with counters.counting() as launches:
        out_RD = experts(*arguments)
        out_RD.sum().backward()
    assert launches.total() == 0
    assert out_RD.shape == (0, D)
    assert all(weight.grad.count_nonzero() == 0 for weight in arguments[2:])


def counted(operator, forward, backward):
    return {(operator, direction): n for direction, n in (("forward", forward), ("backward", backward)) if n}


OPERATORS = pytest.mark.parametrize(
    ("name", "function", "inputs"),
    [
        (EXPERTS, experts, expert_inputs),
        (ROPE, lambda *args: sum(map(torch.sum, rope(*args))), rope_inputs),
    ],
    ids=["experts", "rope"],
)


@OPERATORS
def test_without_gradients(name, function, inputs):
    with torch.no_grad(), counters.counting() as launches:
        out = function(*inputs())
    assert not out.requires_grad
    assert {key[:2]: n for key, n in launches.items()} == counted(name, 1, 0)


@OPERATORS
def test_checkpoint_computes_again(name, function, inputs):
    x, *rest = inputs()
    function(x, *rest).sum().backward()
    plain, x.grad = x.grad, None
    with counters.counting() as launches:
        checkpoint(function, x, *rest, use_reentrant=False).sum().backward()
    assert x.grad.equal(plain)
    assert {key[:2]: n for key, n in launches.items()} == counted(name, 2, 1)


@OPERATORS
def test_backward_twice(name, function, inputs):
    x, *rest = inputs()
    out = function(x, *rest).sum()
    with counters.counting() as launches:
        first, second = (torch.autograd.grad(out, x, retain_graph=True)[0] for _ in range(2))
    assert first.equal(second)
    assert {key[:2]: n for key, n in launches.items()} == counted(name, 0, 2)


@OPERATORS
def test_autocast_changes_nothing(name, function, inputs):
    out = function(*inputs())
    with torch.autocast("cpu", torch.bfloat16), counters.counting() as launches:
        assert function(*inputs()).equal(out)
    assert [key.dtype for key in launches] == ["float32"]


def bad(at, change):
    arguments = list(expert_inputs())
    arguments[at] = change(arguments[at].detach())
    return arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (bad(0, lambda x: x.bfloat16()), "x torch.bfloat16, w1 torch.float32"),
        (bad(3, lambda w: w.double()), "w2 torch.float64, .*cast all"),
        (bad(0, lambda x: x[None]), "x needs the shape"),
        (bad(0, lambda x: x[:, 1:]), "need the shapes"),
        (bad(3, lambda w: w.transpose(1, 2)), "need the shapes"),
        (bad(4, lambda w: w[1:]), "need the shapes"),
        (bad(1, lambda n: n[1:]), "4 experts need as many counts"),
        (bad(1, lambda n: n.float()), "4 experts need as many counts"),
        (bad(1, lambda n: n + 100), "sum to at most 139"),
        (bad(1, lambda n: n - 1), "must not be negative"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, message):
    with pytest.raises(ValueError, match=message) as raised:
        experts(*arguments)
    assert "\n" not in str(raised.value)
