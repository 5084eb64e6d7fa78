"""What torch asks of a process group and its device, on two ranks, from a collective to FSDP and a checkpoint."""

import functools
import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor import randn as dtensor_randn

NEURON = "neuron"
RANK = int(os.environ["RANK"])


def _mine(*shape: int) -> torch.Tensor:
    """A tensor full of this rank's number, counted from 1."""
    return torch.full(shape, float(RANK + 1), device=NEURON)


@functools.cache
def _mesh():
    return init_device_mesh(NEURON, (2,), mesh_dim_names=("dp",))


def process_group():
    dist.init_process_group(backend=NEURON, timeout=timedelta(seconds=60))
    assert dist.get_backend() == NEURON
    assert dist.get_world_size() == 2


def all_reduce():
    for operator, result in ((dist.ReduceOp.SUM, 3), (dist.ReduceOp.AVG, 1.5), (dist.ReduceOp.MAX, 2)):
        x = _mine(3)
        dist.all_reduce(x, op=operator)
        assert x.tolist() == [result] * 3, operator
        assert x.device.type == NEURON


def all_reduce_in_the_background():
    x = _mine(3)
    dist.all_reduce(x, async_op=True).wait()
    assert x.tolist() == [3] * 3


def scaled_sums_leave_their_input_alone():
    x, out = _mine(4), torch.empty(2, device=NEURON)
    dist.reduce_scatter_tensor(out, x, op=dist._make_nccl_premul_sum(0.5))
    assert out.tolist() == [1.5, 1.5]
    assert x.tolist() == [RANK + 1] * 4


def all_gather():
    out = torch.empty(4, device=NEURON)
    dist.all_gather_into_tensor(out, _mine(2))
    assert out.tolist() == [1, 1, 2, 2]
    parts = [torch.empty(2, device=NEURON) for _ in range(2)]
    dist.all_gather(parts, _mine(2))
    assert [part.tolist() for part in parts] == [[1, 1], [2, 2]]


def reduce_scatter():
    out = torch.empty(2, device=NEURON)
    dist.reduce_scatter_tensor(out, torch.arange(4.0, device=NEURON))
    assert out.tolist() == [[0, 2], [4, 6]][RANK]


def all_to_all():
    out = torch.empty(2, device=NEURON)
    dist.all_to_all_single(out, torch.arange(2.0, device=NEURON) + 10 * RANK)
    assert out.tolist() == [[0, 10], [1, 11]][RANK]


def broadcast_and_objects():
    x = _mine(2)
    dist.broadcast(x, 1)
    assert x.tolist() == [2, 2]
    objects = [{"rank": RANK}]
    dist.broadcast_object_list(objects, 0, device=torch.device(NEURON))
    assert objects == [{"rank": 0}]
    gathered = [None, None]
    dist.all_gather_object(gathered, RANK)
    assert gathered == [0, 1]


def barrier():
    dist.barrier()
    dist.barrier(device_ids=[0])


def send_and_receive():
    x = _mine(2)
    if RANK == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
        assert x.tolist() == [1, 1]


def groups_of_ranks():
    group = dist.new_group([0, 1])
    x = _mine(1)
    dist.all_reduce(x, group=group)
    assert x.item() == 3
    assert dist.get_backend(group) == NEURON


def functional_collectives():
    import torch.distributed._functional_collectives as collectives

    assert (collectives.all_reduce(_mine(2), "sum", dist.group.WORLD) + 0).tolist() == [3, 3]
    assert (collectives.all_gather_tensor(_mine(1), 0, dist.group.WORLD) + 0).tolist() == [1, 2]


def dtensors():
    x = torch.arange(8.0).view(4, 2)
    sharded = distribute_tensor(x.to(NEURON), _mesh(), [Shard(0)])
    assert torch.equal(sharded.full_tensor().cpu(), x)
    drawn = dtensor_randn(4, 2, device_mesh=_mesh(), placements=[Shard(0)])
    whole = drawn.full_tensor()
    assert not torch.equal(whole[:2], whole[2:])


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def _shard(model: nn.Sequential, **how) -> nn.Sequential:
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=_mesh(), **how)
    return fully_shard(model, mesh=_mesh(), **how)


def fsdp_trains_as_one_process_on_the_cpu():
    plain, sharded = _model(), _shard(_model().to(NEURON))
    torch.manual_seed(1)
    batches = torch.randn(3, 4, 8)
    for model, rows, device in ((plain, slice(None), "cpu"), (sharded, slice(2 * RANK, 2 * RANK + 2), NEURON)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for batch in batches:
            optimizer.zero_grad()
            model(batch[rows].to(device)).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    ours = [parameter.full_tensor().cpu() for parameter in sharded.parameters()]
    torch.testing.assert_close(ours, [parameter.detach() for parameter in plain.parameters()], rtol=0, atol=1e-6)


def fsdp_from_meta_in_mixed_precision():
    with torch.device("meta"):
        model = _model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    _shard(model, mp_policy=policy, reshard_after_forward=True).to_empty(device=NEURON)
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0, 0.1)
    y = model(torch.randn(2, 8, device=NEURON))
    y.float().sum().backward()
    assert (y.dtype, y.device.type) == (torch.bfloat16, NEURON)
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


def distributed_checkpoints():
    import torch.distributed.checkpoint as dcp

    saved, loaded = _shard(_model().to(NEURON)), _shard(_model().to(NEURON))
    for parameter in loaded.parameters():
        nn.init.zeros_(parameter)
    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folder, 0, device=torch.device(NEURON))
    dcp.save(saved.state_dict(), checkpoint_id=folder[0])
    state = loaded.state_dict()
    dcp.load(state, checkpoint_id=folder[0])
    for theirs, ours in zip(saved.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(theirs.full_tensor(), ours.full_tensor())


def ddp():
    model = nn.parallel.DistributedDataParallel(_model().to(NEURON))
    model(_mine(2, 8)).sum().backward()
    gradient = model.module[0].weight.grad.clone()
    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    assert torch.equal(gradient, model.module[0].weight.grad)


def the_end():
    dist.destroy_process_group()
