"""Faults that only a run at published size would meet; here with the small runs of a rehearsal, on the CPU."""

import pytest

fault = pytest.mark.fault


def _after_each_run(name: str, change) -> None:
    """Call ``change(record)`` on what ``WholeInstance.<name>`` gives."""
    from trncheck.conformance.hardware import WholeInstance

    original = getattr(WholeInstance, name)

    def run(self, *args):
        record = original(self, *args)
        change(record)
        return record

    setattr(WholeInstance, name, run)


@fault("walkthrough.random_start[native-4b]", "|step-1 loss - prediction|")
def test_head_drawn_too_wide():
    from torch import nn

    normal = nn.init.trunc_normal_

    def wider(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, **kwargs):
        return normal(tensor, mean=mean, std=5 * std, a=5 * a, b=5 * b, **kwargs)

    nn.init.trunc_normal_ = wider


@fault("walkthrough.published_start[hf-4b]", "|difference of step-1 loss|")
def test_published_weights_are_not_loaded_at_size():
    from trncheck.conformance import hardware

    hardware._LOAD = "--checkpoint.enable"


@fault("walkthrough.export[moe-4layers-64experts]", "missing keys")
def test_export_at_size_lacks_an_expert():
    from trncheck.trainers import trainer

    complete = trainer.complete_export

    def incomplete(folder, **kwargs):
        from safetensors.torch import load_file, save_file

        complete(folder, **kwargs)
        for file in folder.glob("*.safetensors"):
            tensors = load_file(file)
            kept = {name: tensor for name, tensor in tensors.items() if "layers.1.mlp.experts.3." not in name}
            save_file(kept, file, {"format": "pt"})

    trainer.complete_export = incomplete


@fault("walkthrough.kernels", "trncheck::experts backward, executions")
def test_backward_kernel_of_one_rank_is_not_counted():
    from trncheck.trainers.record import RunRecord

    steps = RunRecord.steps.func

    def fewer(self):
        found = steps(self)
        for step in found:
            for name in step.kernel_counts:
                if name.startswith("trncheck::experts backward"):
                    step.kernel_counts[name] //= 2
        return found

    RunRecord.kernel_counts = property(lambda self: [step.kernel_counts for step in self.steps])
    RunRecord.steps = property(fewer)


@fault("walkthrough.kernels_agree", "difference of loss")
def test_gradients_of_the_expert_kernel_are_too_large():
    from trncheck.kernels.moe import operator

    backward = operator._experts_backward

    def larger(*args):
        return tuple(3 * gradient for gradient in backward(*args))

    operator._experts_backward = larger


@fault("walkthrough.compiled[native-4b]", "|difference of step-1 loss|")
def test_compiled_model_is_another():
    from torchtitan.distributed import compile as titan

    compile_model = titan.apply_compile

    def other(model, *args, **kwargs):
        for block in model.layers.values():
            block.register_forward_hook(lambda module, inputs, output: output * 1.5)
        return compile_model(model, *args, **kwargs)

    titan.apply_compile = other


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


@fault("walkthrough.expectation[step1_loss_random_init]", "distance from the published number")
def test_published_number_is_of_another_model():
    """The published start of the 4B model, held against a run of another size."""
