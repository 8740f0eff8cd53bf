"""A training that was interrupted goes on with selection, and ends where the other one ends."""

import pytest
import torch

pytest.importorskip("transformers")

import fixture_text as text

import selective_backprop as sb

WARM = text.selective(1 / 2, warmup_epochs=1)


def trained(folder, strategy, resume=None, **options):
    chosen = {"num_train_epochs": 3, "save_strategy": "steps", "save_steps": 7}
    made = text.trainer(folder, strategy, **(chosen | options))
    made.train(resume_from_checkpoint=resume)
    return made


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        (text.selective(1 / 3), {"gradient_accumulation_steps": 2, "save_steps": 3}),
        (sb.infobatch(), {"max_steps": 25}),
        (sb.infobatch(), {"num_train_epochs": 4}),
        (WARM, {"save_steps": 6}),
        (WARM, {"save_strategy": "epoch"}),
        (WARM, {"gradient_accumulation_steps": 5, "save_strategy": "epoch"}),
        (sb.traditional(), {"gradient_accumulation_steps": 5, "save_strategy": "epoch"}),
    ],
    ids=lambda each: each.name if isinstance(each, sb.Strategy) else ",".join(map(str, each)),
)
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, strategy, options):
    whole = trained(tmp_path, strategy, **options)
    checkpoints = sorted(tmp_path.iterdir(), key=lambda path: int(path.name.split("-")[1]))
    middle = checkpoints[len(checkpoints) // 2 - 1]
    assert (middle / "selection-0-of-1.pt").is_file()
    for saved in (middle, checkpoints[-1]):
        resumed = trained(tmp_path, strategy, resume=str(saved), **options)
        assert resumed.state.global_step == whole.state.global_step
        assert resumed.selective_loader.stats == whole.selective_loader.stats
        assert torch.equal(text.weights(resumed), text.weights(whole))
        assert resumed.state.epoch == whole.state.epoch
        assert resumed.args.ignore_data_skip is False  # as it was


def test_a_checkpoint_without_selection_or_of_more_processes_is_refused(tmp_path):
    trained(tmp_path, None, max_steps=7)
    with pytest.raises(sb.ConfigurationError, match="saved without selection"):
        trained(tmp_path, text.selective(), resume=True)
    (tmp_path / "checkpoint-7" / "selection-0-of-2.pt").touch()
    with pytest.raises(sb.ConfigurationError, match=r"another number of .* \(selection-0-of-2"):
        trained(tmp_path, text.selective(), resume=True)


def test_what_cannot_be_gone_on_from_is_not_saved(tmp_path):
    trained(tmp_path, text.selective(), max_steps=7, save_only_model=True)
    assert not (tmp_path / "checkpoint-7" / "selection-0-of-1.pt").exists()


def test_a_second_training_begins_anew(tmp_path):
    made = text.trainer(tmp_path, text.selective(), num_train_epochs=1)
    made.train()
    first = made.selective_loader
    made.train()
    assert made.selective_loader is not first
    assert made.selective_loader.stats.candidates == first.stats.candidates
