"""Faults in what a restart restores, and in what it refuses."""

import pytest

fault = pytest.mark.fault


@fault("resume.restarted[lr-native-dense-tied-1r]", "lr of step 3")
def test_scheduler_not_restored():
    from torchtitan.components.optimizer import LRSchedulersContainer

    LRSchedulersContainer.load_state_dict = lambda self, state_dict: None


@fault("resume.restarted[loss-native-dense-tied-1r]", "loss of step 4")
def test_optimizer_not_restored():
    from torchtitan.components.optimizer import OptimizersContainer

    OptimizersContainer.load_state_dict = lambda self, state_dict: None


@fault("resume.restarted[tokens-native-moe-2r]", "tokens of step 3")
def test_data_position_not_restored():
    from torchtitan.components.dataloader import ParallelAwareDataloader

    ParallelAwareDataloader.load_state_dict = lambda self, state_dict: None


@fault("resume.restarted[grad_norm-hf-moe-1r]", "grad_norm of step 3")
def test_one_weight_changed_at_restart():
    from torchtitan.components.checkpointer import ModelWrapper

    original = ModelWrapper.load_state_dict

    def change(self, state_dict):
        original(self, state_dict)
        self.model[0].norm.weight.data.mul_(1.001)

    ModelWrapper.load_state_dict = change


@fault("resume.restarted[tokens-hf-dense-untied-2r]", "tokens of step 5")
def test_epoch_not_restored():
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataset

    original = HuggingFaceTextDataset.load_state_dict
    HuggingFaceTextDataset.load_state_dict = lambda self, state: original(self, state | {"epoch": 0})


@fault("resume.schedule", "learning rate of step 1")
def test_no_warm_up():
    from trncheck.trainers.trainer import NativeTrainer

    original = NativeTrainer.__init__

    def start_hot(self, config):
        config.lr_scheduler.warmup_steps = 0
        original(self, config)

    NativeTrainer.__init__ = start_hot


@fault("resume.used_folder", "status 0 after training steps [7, 8]")
def test_used_folder_resumed_silently():
    from trncheck.trainers import trainer

    trainer.check_dump_folder = lambda config: None


@fault("resume.nothing_left", "status 0 after training steps []")
def test_zero_steps_accepted():
    from trncheck.trainers.trainer import NativeTrainer

    NativeTrainer._check_loaded = lambda self: None


@fault("resume.epochs[native-dense-tied-1r]", "the order differs: expected True, found False")
def test_epochs_all_in_one_order():
    from datasets import Dataset

    Dataset.shuffle = lambda self, *args, **kwargs: self


@fault("resume.epochs[hf-dense-untied-2r]", "documents that the second epoch lacks")
def test_ranks_read_the_same_part_from_the_second_epoch_on():
    from datasets import Dataset

    original = Dataset.shuffle

    def first_half_twice(self, *args, **kwargs):
        shuffled = original(self, *args, **kwargs)
        half = [*range(len(shuffled) // 2)]
        return shuffled.select(half + half)

    Dataset.shuffle = first_half_twice


@fault("resume.other_ranks[from-1-to-2]", "tokens of step 5")
def test_position_in_the_data_not_kept():
    from torchtitan.components.dataloader import ParallelAwareDataloader

    ParallelAwareDataloader.state_dict = lambda self: {}
    ParallelAwareDataloader.load_state_dict = lambda self, state_dict: None
