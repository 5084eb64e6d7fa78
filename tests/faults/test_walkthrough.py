"""Faults that only a run at published size would meet; here with the small runs of a rehearsal, on the CPU."""

import functools

import pytest
import torch

fault = pytest.mark.fault


@fault("walkthrough.random_start[native-4b]", "|step-1 loss - prediction|")
def test_head_drawn_too_wide():
    from trncheck.trainers import native

    native._INIT["weight"] = functools.partial(torch.nn.init.normal_, std=0.2)


@fault("walkthrough.published_start[hf-4b]", "|difference of step-1 loss|")
def test_published_weights_are_not_loaded_at_size():
    from trncheck.conformance import hardware

    hardware._CONTINUE = "--checkpoint.enable --checkpoint.load_only --checkpoint.no-last_save_in_hf"


@fault("walkthrough.export[moe-4layers-64experts]", "missing keys")
def test_export_at_size_lacks_a_norm():
    from trncheck.trainers import trainer

    complete = trainer.complete_export

    def incomplete(folder, **kwargs):
        from safetensors.torch import load_file, save_file

        complete(folder, **kwargs)
        for file in folder.glob("*.safetensors"):
            tensors = load_file(file)
            kept = {name: tensor for name, tensor in tensors.items() if name != "model.norm.weight"}
            save_file(kept, file, {"format": "pt"})

    trainer.complete_export = incomplete


@fault("walkthrough.kernels", "experts backward, executions: expected 4, found 2")
def test_backward_kernel_of_one_rank_is_not_counted():
    from trncheck.trainers import trainer

    end_step = trainer.Executions.end_step

    def forgetful(self, step):
        counts = end_step(self, step)
        if torch.distributed.get_rank():
            counts = {name: count for name, count in counts.items() if not name.startswith("experts backward")}
        return counts

    trainer.Executions.end_step = forgetful


@fault("walkthrough.kernels_agree", "relative difference of step 1's gradient norm")
def test_gradients_of_the_expert_kernel_are_too_large():
    from trncheck.kernels.moe import operator

    backward = operator._experts_backward

    def larger(*args):
        return tuple(30 * gradient for gradient in backward(*args))

    operator._experts_backward = larger


@fault("walkthrough.compiled[native-4b]", "relative difference of step 1's gradient norm")
def test_compiled_model_is_another():
    from torchtitan.models.qwen3 import parallelize

    apply_compile = parallelize.apply_compile

    def other(model, **kwargs):
        for block in model.layers.values():
            block.register_forward_hook(lambda module, inputs, output: 2 * output)
        apply_compile(model, **kwargs)

    parallelize.apply_compile = other


@fault("walkthrough.tensor_parallel[native-4b]", "mesh")
def test_tensor_parallel_degree_is_ignored():
    from trncheck.conformance.hardware import WholeInstance

    WholeInstance.tensor_parallel = WholeInstance.random_start


@fault("walkthrough.repeated[native-4b]", "loss and gradient norm")
def test_second_run_has_another_seed():
    from trncheck.conformance.hardware import WholeInstance

    run = WholeInstance._run

    def seeded(self, job, name, flags, weights, **kwargs):
        return run(self, job, name, f"{flags} --debug.seed 43" if name == "again" else flags, weights, **kwargs)

    WholeInstance._run = seeded


@fault("walkthrough.expectation[step1_loss_random_init]", "it is a finite number")
def test_published_number_is_not_a_number_here():
    from trncheck.conformance import test_walkthrough

    test_walkthrough._MEASURED["step1_loss_random_init"] = lambda instance, reloader: float("nan")
