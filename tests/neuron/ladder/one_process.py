"""What torch and torchtitan ask of a device, in one process, from the creation of a tensor to a graph capture."""

import copy
import io

import torch
import torch.nn.functional as F
from torch import nn

NEURON = "neuron"


def _refused(call, kind: type[Exception], says: str) -> None:
    message = "it was done"
    try:
        call()
    except kind as error:
        message = str(error)
    assert says in message, message


def import_torch_alone_brings_the_device():
    x = torch.empty(2, 3, device=NEURON)
    assert x.device == torch.device("neuron", 0)
    assert x.is_neuron
    assert torch.accelerator.current_accelerator().type == NEURON
    assert torch.get_device_module(NEURON) is torch.neuron


def arithmetic():
    y = torch.ones(2, 3, device=NEURON) + torch.arange(6.0, device=NEURON).view(2, 3) * 2
    assert torch.equal(y.cpu(), 1 + torch.arange(6.0).view(2, 3) * 2)


def views_share_memory():
    x = torch.randn(4, 5)
    y = x.to(NEURON)
    assert torch.equal(y.t()[1:3].contiguous().cpu(), x.t()[1:3])
    y[1].fill_(7)
    y.view(-1)[0] = 3
    assert y.cpu()[1].tolist() == [7] * 5
    assert y[0, 0].item() == 3
    y[y > 0] = 0
    assert y.max().item() <= 0
    assert y.index_select(0, torch.tensor([1, 2], device=NEURON)).shape == (2, 5)
    assert "device='neuron:0'" in repr(y)


def conjugated_copies_end():
    x = torch.randn(3, dtype=torch.complex64)
    assert torch.equal(x.to(NEURON).conj().cpu(), x.conj().resolve_conj())
    assert torch.equal(x.to(NEURON).conj().imag.neg().cpu(), x.imag)


def out_arguments_are_resized():
    out = torch.empty(0, device=NEURON)
    torch.add(torch.ones(3, device=NEURON), 1, out=out)
    assert out.tolist() == [2, 2, 2]


def storages_are_resized_and_set():
    x = torch.ones(4, device=NEURON)
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(16)
    x.set_(torch.zeros(2, device=NEURON))
    assert x.tolist() == [0, 0]


def random_numbers_follow_the_seed():
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append(torch.randn(3, device=NEURON).cpu())
    assert torch.equal(*drawn)
    assert not torch.equal(drawn[0], torch.randn(3, device=NEURON).cpu())
    generator = torch.Generator(device=NEURON).manual_seed(1)
    assert torch.rand(2, device=NEURON, generator=generator).shape == (2,)
    assert F.dropout(torch.ones(4, device=NEURON)).shape == (4,)


def random_state_is_a_seed_and_an_offset():
    state = torch.neuron.get_rng_state()
    assert state.numel() * state.itemsize == 16  # as DTensor's tracker takes it apart
    before = torch.randn(3, device=NEURON).cpu()
    torch.neuron.set_rng_state(state)
    assert torch.equal(torch.randn(3, device=NEURON).cpu(), before)


def mixed_devices_are_refused():
    _refused(lambda: torch.ones(3, device=NEURON) + torch.ones(3), RuntimeError, "same device")
    _refused(lambda: torch.cat([torch.ones(3, device=NEURON), torch.ones(3)]), RuntimeError, "one device")


def devices_that_do_not_exist_are_refused():
    beyond = f"neuron:{torch.neuron.device_count()}"
    _refused(lambda: torch.ones(1, device=beyond), RuntimeError, "does not exist")


def gradients_are_those_of_the_cpu():
    torch.manual_seed(0)
    linear, x = nn.Linear(4, 3), torch.randn(2, 4)
    linear(x).pow(2).sum().backward()
    theirs = copy.deepcopy(linear).to(NEURON)
    theirs.zero_grad()
    theirs(x.to(NEURON)).pow(2).sum().backward()
    assert torch.equal(theirs.weight.grad.cpu(), linear.weight.grad)


def _trained(device: str, **how) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 1))
    x = torch.randn(4, 8)
    model, x = model.to(device), x.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, **how)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def optimizers_train_as_on_the_cpu():
    for how in ({}, {"foreach": True}, {"fused": True}):
        torch.testing.assert_close(_trained(NEURON, **how), _trained("cpu", **how), rtol=0, atol=1e-5)


def attention():
    q = torch.randn(1, 2, 4, 8, device=NEURON, requires_grad=True)
    out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    out.sum().backward()
    host = q.detach().cpu()
    truth = F.scaled_dot_product_attention(host, host, host, is_causal=True)
    torch.testing.assert_close(out.detach().cpu(), truth, rtol=0, atol=1e-5)


def loss_and_embedding():
    logits = torch.randn(4, 9, device=NEURON, requires_grad=True)
    F.cross_entropy(logits, torch.tensor([1, 2, -100, 3], device=NEURON)).backward()
    assert logits.grad[2].abs().sum().item() == 0
    embedding = nn.Embedding(5, 4).to(NEURON)
    embedding(torch.tensor([0, 1, 1], device=NEURON)).sum().backward()
    assert embedding.weight.grad[1, 0].item() == 2


def grouped_matmul():
    x = torch.randn(6, 8, device=NEURON, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(2, 8, 16, device=NEURON, dtype=torch.bfloat16, requires_grad=True)
    out = torch._grouped_mm(x, w, offs=torch.tensor([2, 6], dtype=torch.int32, device=NEURON))
    out.float().pow(2).sum().backward()
    assert out.shape == (6, 16)
    assert w.grad.shape == w.shape


def operators_of_the_device():
    @torch.library.custom_op("ladder::double", mutates_args=(), device_types=NEURON)
    def double(x: torch.Tensor) -> torch.Tensor:
        return x + x

    double.register_fake(torch.empty_like)
    double.register_autograd(lambda ctx, gradient: double(gradient))
    x = torch.ones(3, device=NEURON, requires_grad=True)
    double(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    _refused(lambda: double(torch.ones(3)), NotImplementedError, "CPU")


def meta_modules_become_real():
    with torch.device("meta"):
        linear = nn.Linear(4, 4)
    linear.to_empty(device=NEURON)
    nn.init.normal_(linear.weight)
    nn.init.trunc_normal_(linear.weight)
    nn.init.zeros_(linear.bias)
    assert linear.weight.device.type == NEURON
    with torch.device(NEURON):
        assert nn.Linear(2, 2).weight.device.type == NEURON


def accelerator_api():
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == torch.neuron.device_count()
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream().device.type == NEURON


def memory_is_counted():
    torch.accelerator.empty_cache()
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    made = torch.empty(1000, device=NEURON)
    computed = made + 1
    assert torch.neuron.memory_allocated() - before == 8000
    assert torch.accelerator.memory_allocated() == torch.neuron.memory_allocated()
    del made, computed
    assert torch.neuron.memory_allocated() == before
    stats = torch.neuron.memory_stats()
    assert stats["active_bytes.all.peak"] == torch.neuron.max_memory_allocated() >= before + 8000
    assert stats["reserved_bytes.all.peak"] >= stats["allocated_bytes.all.peak"] >= stats["active_bytes.all.peak"]


def streams_and_events():
    stream, event = torch.neuron.Stream(), torch.neuron.Event()
    event.record(stream)
    stream.wait_event(event)
    stream.wait_stream(torch.neuron.current_stream())
    with torch.neuron.stream(stream):
        torch.ones(1, device=NEURON)
    event.synchronize()
    torch.neuron.synchronize()
    assert isinstance(torch.Stream(device=NEURON), torch.Stream)


def autocast_follows_the_rules_of_cuda():
    linear = nn.Linear(4, 4).to(NEURON)
    with torch.autocast(NEURON, dtype=torch.bfloat16):
        y = linear(torch.ones(2, 4, device=NEURON))
        z = torch.softmax(y, -1)
    assert (y.dtype, z.dtype) == (torch.bfloat16, torch.float32)
    y.sum().backward()


def files():
    file = io.BytesIO()
    torch.save(torch.ones(2, device=NEURON), file)
    for where, device in ((None, NEURON), ("cpu", "cpu")):
        file.seek(0)
        assert torch.load(file, weights_only=True, map_location=where).device.type == device


def activation_checkpointing():
    from torch.utils.checkpoint import checkpoint

    linear, x = nn.Linear(3, 3).to(NEURON), torch.ones(2, 3, device=NEURON, requires_grad=True)
    checkpoint(lambda x: linear(x).relu(), x, use_reentrant=False).sum().backward()
    assert x.grad is not None


def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.ones(2, 3, device=NEURON)
        assert (x @ x.t()).device.type == NEURON


def graph_capture():
    captured = torch.compile(lambda x: (x * 2).relu().sum(), backend="aot_eager")
    x = torch.ones(3, device=NEURON, requires_grad=True)
    captured(x).backward()
    assert x.grad.tolist() == [2, 2, 2]


def counting_of_flops():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        torch.ones(2, 3, device=NEURON) @ torch.ones(3, 2, device=NEURON)
    assert counter.get_total_flops() == 24


def executed_operators_are_tracked():
    import torch_neuronx

    torch_neuronx.clear_op_tracking()
    torch.ones(2, 2, device=NEURON) @ torch.ones(2, 2, device=NEURON)
    assert "aten::mm" in torch_neuronx.get_executed_ops()
    assert torch_neuronx.get_fallback_ops() == []


def missing_operators_are_refused():
    from torch_neuronx import _standin

    _standin.set_denied_operators(["aten::cumsum"])
    _refused(lambda: torch.ones(2, device=NEURON).cumsum(0), NotImplementedError, "aten::cumsum")
    _standin.set_denied_operators([])


def kernels_of_the_kit():
    from trncheck.kernels import counters
    from trncheck.kernels.rope.operator import provider, rope
    from trncheck.kernels.rope.reference import rope_reference

    q, k = torch.randn(1, 2, 256, 8, requires_grad=True), torch.randn(1, 1, 256, 8)
    cache = torch.randn(256, 16)
    device = [tensor.detach().to(NEURON).requires_grad_(tensor.requires_grad) for tensor in (q, k, cache)]
    counters.reset()
    outputs, truth = rope(*device), rope_reference(q, k, cache)
    for ours, theirs in zip(outputs, truth, strict=True):
        assert ours.device.type == NEURON
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=0, atol=1e-6)
    outputs[0].square().sum().backward()
    truth[0].square().sum().backward()
    torch.testing.assert_close(device[0].grad.cpu(), q.grad, rtol=0, atol=1e-5)
    assert "standin" in provider()
    assert {backend for _, _, _, backend in counters.counts()} == {NEURON}


def nothing_looks_like_hardware():
    assert "trn" not in torch.neuron.get_device_name().split()
    assert not torch.neuron.get_device_properties().name.startswith(("trn1", "trn2", "trn3"))


def a_fork_after_use_is_refused():
    import os

    torch.ones(1, device=NEURON)
    child = os.fork()
    if child == 0:
        refused = torch.neuron._is_in_bad_fork()
        try:
            torch.ones(1, device=NEURON)
        except RuntimeError as error:
            os._exit(0 if refused and "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
