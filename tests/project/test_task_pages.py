"""What pages on tasks, language models, questions and parts of your own show runs, in order."""

import random
import re
from dataclasses import replace
from types import SimpleNamespace

import fixture_language as language
import numpy as np
import pytest
import torch
from fixture_extend import DIVERSE, DOCS, EXAMPLES, MODULES, NAMES, names_of
from fixture_loaders import Numbered
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import selective_backprop as sb


def sections(page: str) -> dict[str, str]:
    """The code under each heading of a page, up to the next heading."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = {}
    for part in re.findall(r"^## (.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE):
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE))
        if code:
            found[part.splitlines()[0]] = code
    return found


TASKS = sections("tasks.md")
LOSSES = dict(  # by task, as the page's table has them
    re.findall(r"^\| (.*?) \| `(nn\..*?)` \|", (DOCS / "tasks.md").read_text("utf-8"), re.MULTILINE)
)
DOUBTED = "Texts that look wrong"
FITS = "What the model fits already"


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    images, labels = language.digits()
    return images[:128], labels[:128]


def task_names(task: str) -> dict[str, object]:
    """What the page takes for granted under a heading."""
    images, labels = digits()
    pixels = images.flatten(1)
    named = [{"pixels": p, "label": label} for p, label in zip(pixels, labels, strict=True)]
    examples = {
        "regression": TensorDataset(pixels, labels.float().unsqueeze(1)),
        "segmentation": TensorDataset(images, (images > 0.5).long().squeeze(1)),
        "several labels per example": TensorDataset(pixels, functional.one_hot(labels, 10).float()),
        "Batches that are not pairs": named,
    }.get(task, TensorDataset(pixels, labels))
    heads = {"regression": nn.Linear(64, 1), "segmentation": nn.Conv2d(1, 2, 3, padding=1)}
    strategy = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)
    names = names_of(examples, heads.get(task, nn.Linear(64, 10)), batch_size=32)
    return names | {"strategy": strategy, "weights": torch.ones(10)}


@pytest.mark.parametrize("task", TASKS)
def test_what_the_page_shows_of_a_task_runs(task: str) -> None:
    names = task_names(task)
    exec(TASKS[task], names)
    loader = names["loader"]
    if not loader.stats.batches:
        assert len(list(loader)) == 2
    assert (loader.stats.kept, loader.stats.scored) == (64, 128)


def test_graphs_joined_in_one_stay_as_they_are_if_chosen_before_loading() -> None:
    graphs = [torch.full((1 + number % 3,), number) for number in range(8)]
    plain = DataLoader(graphs, 4, collate_fn=lambda some: (torch.cat(some), torch.arange(4)))
    ((nodes, _),) = sb.SelectiveLoader(plain, nn.Linear(2, 2), None, sb.random_backprop(1 / 2))
    assert torch.equal(nodes, torch.cat([graphs[number] for number in nodes.unique_consecutive()]))


@pytest.mark.parametrize("task", LOSSES)
def test_a_loss_of_the_page_works_as_it_is(task: str) -> None:
    names = task_names(task)
    model, strategy = names["model"], names["strategy"]
    loss_fn = eval(LOSSES[task], names)
    loader = sb.SelectiveLoader(names["train_loader"], model, loss_fn, strategy)
    for inputs, targets in loader:
        loader.loss_fn(model(inputs), targets).backward()
    assert (loader.stats.kept, loader.stats.scored) == (64, 128)


QUESTIONS, OTHERS = sections("questions.md"), sections("coming-from.md")


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_to_a_question_runs_and_takes_three_lines(question: str) -> None:
    images, labels = digits()
    model = nn.Linear(64, 10)
    if "own" in question or "regression" in question:
        labels = functional.one_hot(labels, 10).float()
    names = names_of(TensorDataset(images.flatten(1), labels), model, batch_size=16)
    loader = sb.SelectiveLoader(names["train_loader"], model, names["loss_fn"], sb.auto())
    names["loader"], recorded = loader, loader.loss_fn
    if question.startswith(("It skips", "Which examples")):  # after a first epoch
        for inputs, targets in loader:
            recorded(model(inputs), targets).backward()
    assert all(len(code.splitlines()) <= 3 for code in QUESTIONS[question].rstrip().split("\n\n"))
    exec(QUESTIONS[question], names)
    made = names["loader"]
    if made is not loader and not made.stats.batches:
        names["loss_fn"] = made.loss_fn
        assert len(list(made)) == made.stats.batches > 0


def test_auto_undoes_a_part_of_what_a_balanced_sampler_does_as_the_page_says():
    pixels, labels = (part[:1437] for part in language.digits())
    rare, model, seen = (labels == 8).long(), nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), []
    drawn = WeightedRandomSampler((1 / rare.bincount())[rare], len(rare))
    data = DataLoader(TensorDataset(pixels, rare), 32, sampler=drawn)
    with pytest.warns(sb.SelectionWarning, match="auto undoes a part of what WeightedRandom"):
        loader = sb.SelectiveLoader(data, model, nn.CrossEntropyLoss(), sb.auto())
    optimizer, loss_fn = torch.optim.SGD(model.parameters(), 0.1, 0.9), loader.loss_fn
    for _ in range(6):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()
            seen += targets.tolist()
    first, later = torch.tensor(seen, dtype=torch.float32).tensor_split([1437])
    assert first.mean() == pytest.approx(1 / 2, abs=0.05)
    assert later.mean() == pytest.approx(1 / 3, abs=0.08)


@pytest.mark.parametrize("other", OTHERS)
def test_what_stands_beside_another_package_runs(other, capsys):
    images, labels = digits()
    wrong = functional.one_hot(labels, 10) * 0.95 + 0.005
    wrong[::16] = wrong[::16].roll(1, dims=1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    names = names_of(TensorDataset(images, labels), model, batch_size=16)
    names |= {"pred_probs": wrong, "labels": labels}
    exec(OTHERS[other], names)
    if "cleanlab" in other:
        printed = capsys.readouterr().out.strip("[]\n").split()
        assert sorted(map(int, printed)) == [*range(0, 128, 16)]
        return
    loader, schedule = names["loader"], names["strategy"].schedule
    assert schedule.end in (0.875, 0.9)
    loader.set_epoch(20)  # of 30, or of 200
    for inputs, targets in loader:
        names["loss_fn"](names["model"](inputs), targets).backward()
    assert loader.stats.scored == (128 if "Composer" in other else 0)


def test_the_page_on_language_models_runs_and_trains() -> None:
    shown = sections("language-models.md")
    lines = language.Lines()
    model = language.make_model(lines)
    before = language.mean_loss(model, lines)
    loader = DataLoader(lines, 24, shuffle=True, collate_fn=language.pad)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    names = MODULES | {"train_loader": loader, "model": model, "optimizer": optimizer}
    assert {*shown} == {"Whole examples", FITS, DOUBTED}
    for part in ("Whole examples", FITS):
        start = language.mean_loss(model, lines)
        exec(shown[part], names)
        for _ in range(2 if part == FITS else 0):  # epochs of the loop above it
            for batch in names["tail"]:
                names["optimizer"].zero_grad()
                names["tail_loss"](*names["predict"](model, batch)).backward()
                names["optimizer"].step()
        assert language.mean_loss(model, lines) < start, part
    assert language.mean_loss(model, lines) < before - 0.8
    assert names["loader"].next_epoch == 1
    stats = names["tail"].stats
    assert stats.scored == 0
    assert stats.kept == pytest.approx(0.75 * stats.candidates, abs=48)


def test_texts_of_random_letters_are_those_that_look_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = language.Lines()
    model, texts = language.make_model(lines), lines.lines
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for batch in DataLoader(lines, 24, shuffle=True, collate_fn=language.pad):
        optimizer.zero_grad()
        functional.cross_entropy(*language.outputs(model, batch)).backward()
        optimizer.step()
    random.seed(0)
    lines.lines = [*texts[:40], "".join(random.choices([*lines.numbers], k=50)), *texts[41:]]
    shown = sections("language-models.md")
    names = MODULES | {"model": model, "loss_fn": nn.CrossEntropyLoss(), "texts": lines.lines}
    names |= {"predict": language.outputs}
    names["texts_in_order"] = DataLoader(lines, 24, collate_fn=language.pad)
    exec(shown[DOUBTED], names)
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith(lines.lines[40])
    head, *rows = (tmp_path / "losses.csv").read_text("utf-8").splitlines()
    assert head.endswith(",text")
    assert len(rows) == len(lines)


def test_the_page_on_rollouts_runs_and_leaves_out_what_has_no_gradient() -> None:
    shown = sections("rollouts.md")
    torch.manual_seed(0)
    model, rows, answered, trained = nn.Linear(4, 1), [], [], []
    nn.init.ones_(model.weight)
    inputs = torch.randn(16, 4)

    def policy_losses(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        rows.append(len(batch["inputs"]))
        return batch["advantages"] * model(batch["inputs"]).squeeze(1)

    def generate_and_reward(model: nn.Module, prompts: torch.Tensor) -> torch.Tensor:
        answered.extend(prompts.tolist())
        return (prompts[:, None] % 4 > torch.tensor([0, 0, 0, 0, 1])).float()

    rewards = torch.tensor([1.0] * 8 + [1.0, 0.0] * 4)  # of the answers to two prompts
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    names = MODULES | {"model": model, "optimizer": optimizer, "policy_losses": policy_losses}
    names |= {"prompts": torch.arange(64), "generate_and_reward": generate_and_reward}
    names["train_on"] = trained.append
    rollout = {"inputs": inputs, "rewards": rewards, "advantages": rewards - 0.5}
    names["rollouts"] = [rollout] * 2
    code = shown["The same training with less"]
    exec(code, names)
    assert rows == [8, 8]
    rows.clear()
    names["rollouts"] = [rollout] * 5
    exec(code.replace("NonzeroRows()", "NonzeroRows(backfill=16)"), names)
    assert rows == [16, 16]  # of eight from each call
    exec(shown["Before anything is generated"], names)
    assert sorted(answered) == [*range(64)]
    odds = names["resting"].odds
    assert odds.tolist() == [0.5 if number % 4 != 1 else 1.0 for number in range(64)]
    assert sum(map(len, trained)) == 64


def test_what_is_shown_for_models_of_hugging_face_is_the_loss_of_the_next_token() -> None:
    names = dict(MODULES)
    shown = sections("language-models.md")["Whole examples"]
    [code] = re.findall(r"^def predict_next.*?(?=^\n\n|\Z)", shown, re.DOTALL | re.MULTILINE)
    exec(code, names)
    logits, labels = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5))
    batch = {"input_ids": labels, "attention_mask": torch.ones_like(labels), "labels": labels}
    model = lambda input_ids, attention_mask: SimpleNamespace(logits=logits)  # noqa: E731
    found = functional.cross_entropy(*names["predict_next"](model, batch), reduction="none")
    odds = logits[:, :-1].log_softmax(-1)
    torch.testing.assert_close(found, -odds.gather(2, labels[:, 1:, None]).squeeze(2))


Margin, Gentle = NAMES["Margin"], NAMES["Gentle"]


def test_a_strategy_of_both_trains() -> None:
    torch.manual_seed(0)
    data = TensorDataset(*(part[: language.TRAINED] for part in language.digits()))
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    found = {"train_loader": DataLoader(data, 32, shuffle=True), "model": net}
    found |= NAMES | {"loss_fn": nn.CrossEntropyLoss()}
    exec(EXAMPLES[-1], found)
    loader = found["loader"]
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(3):
        for images, labels in loader:
            optimizer.zero_grad()
            found["loss_fn"](net(images), labels).backward()
            optimizer.step()
    assert loader.stats.kept == pytest.approx(1400 * (1 + 2 / 3), abs=64)
    images, labels = (part[language.TRAINED :] for part in language.digits())
    with torch.no_grad():
        assert (net(images).argmax(1) != labels).float().mean() < 0.2


def test_a_margin_is_how_far_the_best_wrong_class_is_ahead() -> None:
    batch = torch.tensor([[3.0, 1.0], [3.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 1, 0])
    strategy = sb.top_k(2 / 3, scorer=Margin())
    step = sb.SelectiveStep(nn.Identity(), nn.CrossEntropyLoss(), strategy)
    context = sb.selectors.Context(2, 3, nn.Identity(), outputs=lambda model, batch: batch)
    assert Margin().start(context).score(batch, None).tolist() == [-2.0, 3.0, 0.0]
    assert step(batch).rows.tolist() == [1, 2]


def test_who_gives_losses_alone_has_no_margins() -> None:
    strategy = sb.Strategy("margin", Margin(), Gentle(1 / 3))
    losses = {"losses": lambda model, batch: model(batch[0]).sum(1)}
    with pytest.raises(sb.ConfigurationError, match="outputs=callable"):
        sb.SelectiveLoader(DataLoader(Numbered(40), 8), nn.Identity(), None, strategy, **losses)


def spanning(logits, labels, missed) -> tuple[list[int], np.ndarray]:
    """The four rows that span the sum of gradients best, greedily, and what they miss of it."""
    gradients = (logits.softmax(1) - functional.one_hot(labels, 9)).double().numpy()
    rest, chosen = gradients.sum(0) + missed, []
    for _ in range(4):
        chosen.append(int(np.argmax(np.abs(gradients @ rest) * ~np.isin(range(12), chosen))))
        basis = gradients[chosen].T
        rest = rest - basis @ np.linalg.pinv(basis) @ rest
    return sorted(chosen), rest


@pytest.mark.parametrize("loads", [12, 5])
def test_rows_of_a_window_are_chosen_together_and_remembered(loads) -> None:
    torch.manual_seed(0)
    data, missed = TensorDataset(torch.randn(36, 9), torch.arange(36) % 9), 0.0
    loss_fn, net = nn.CrossEntropyLoss(), nn.Identity()
    options = {"batch_size": 4, "with_selection": True}
    loader = sb.SelectiveLoader(DataLoader(data, loads), net, loss_fn, DIVERSE, **options)
    step = sb.SelectiveStep(net, loss_fn, DIVERSE, nonfinite="skip")
    chosen = [selection.indices.tolist() for _, selection in loader]
    for number, rows in enumerate(chosen):
        logits, labels = data[12 * number : 12 * (number + 1)]
        expected, missed = spanning(logits, labels, missed)
        assert rows == [12 * number + row for row in expected]
        lost = (
            torch.cat([logits.new_full((1, 9), torch.nan), logits]),
            torch.cat([labels[:1], labels]),
        )
        assert step(lost).rows.tolist() == [1 + row for row in expected]
    assert len(chosen) == 3


class Bare(NAMES["Gradients"]):
    start = sb.scorers.Forward().start


def test_features_that_are_missing_are_refused() -> None:
    scorer, diverse = NAMES["Gradients"](), NAMES["Diverse"]()
    for other in (sb.scorers.Forward(), sb.scorers.Recorded(), None):
        with pytest.raises(sb.ConfigurationError, match=r"features|needs a scorer"):
            sb.Strategy("diverse", other, diverse)
    with pytest.raises(sb.ConfigurationError, match="returns features"):
        sb.scorers.Stale(scorer)
    step = sb.SelectiveStep(nn.Identity(), nn.CrossEntropyLoss(), replace(DIVERSE, scorer=Bare()))
    with pytest.raises(sb.LossError, match=r"features of 3 .* shape None"):
        step((torch.randn(3, 2), torch.tensor([0, 1, 0])))
