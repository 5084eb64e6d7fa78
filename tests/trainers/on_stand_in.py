"""Runs of the trainer in a rehearsal, for ``test_neuron``: a process that has imported everything forks all ranks.

No real device survives a fork, so ``launch`` never forks ranks that have one; the stand-in does until it is used.

``python on_stand_in.py RUNS`` with a JSON list of runs: folder, config, flags, ranks, and by name what is different in
its ranks. What a run fails with goes to ``failure.txt`` of its folder.
"""

import json
import sys
from pathlib import Path

from trncheck.trainers import children, job, launch


def flex_attention_that_works() -> None:
    """As a release might have it: torch lets the device pass."""
    from torch.nn.attention import flex_attention

    flex_attention._validate_device = lambda query, key, value: None
    _compile_nothing()


def no_scaled_sum() -> None:
    """PREMUL_SUM refused, as gloo does."""
    _reduce_scaled_sums(refuse=True)


def scaled_sum_that_forgets_to_scale() -> None:
    """PREMUL_SUM taken for SUM, without a word."""
    _reduce_scaled_sums(refuse=False)


def flex_attention_not_tried() -> None:
    from trncheck.trainers import neuron

    neuron.flex_attention = lambda: None
    _compile_nothing()


def scaled_sum_not_tried() -> None:
    from trncheck.trainers import neuron

    no_scaled_sum()
    neuron.scaled_sum = lambda: None


def _compile_nothing() -> None:
    """Inductor, which has no such device, fails in its own way and takes its time."""
    from torchtitan.models.common import attention

    attention.FlexAttention._compiled_flex_attn = attention.flex_attention
    attention._compiled_create_block_mask = attention.create_block_mask


def experts_on_the_host() -> None:
    """As torchtitan has them."""
    from trncheck.trainers import transformers_model

    transformers_model._with_experts_on_meta = lambda parallelize_fn: parallelize_fn


def _reduce_scaled_sums(*, refuse: bool) -> None:
    import torch.distributed as dist

    reduce_scatter = dist.reduce_scatter_single

    def disturbed(output, input, op=dist.ReduceOp.SUM, **kwargs):
        if op == dist.ReduceOp.PREMUL_SUM:
            if refuse:
                raise RuntimeError("Cannot use ReduceOp.PREMUL_SUM with neuron")
            op = dist.ReduceOp.SUM
        return reduce_scatter(output, input, op=op, **kwargs)

    dist.reduce_scatter_single = disturbed


def _rank(flags: list[str], different: str | None) -> None:
    if different:
        globals()[different]()
    job.train(flags)


def main() -> None:
    children.warm_up()
    for run in json.loads(sys.argv[1]):
        folder = Path(run["folder"])
        flags = ["--config", run["config"], "--dump_folder", str(folder), *run["flags"]]
        try:
            with launch._rendezvous(run["ranks"]) as ranks:
                calls = [(_rank, (flags, run["different"]), environment) for environment in ranks]
                children._run("fork", calls, folder, timeout=120)  # which the stand-in survives until it is used
        except launch.RunFailed as failure:
            (folder / "failure.txt").write_text(str(failure))


if __name__ == "__main__":
    main()
