"""Each rule of another paper does what its formula says, as plain loops compute it."""

from importlib import import_module
from itertools import combinations, pairwise
from math import ceil, exp

import numpy as np
import pytest
import torch
from fixture_loaders import flat
from fixture_training import Training, check_batches, outcome
from scipy import stats

import selective_backprop as sb
from reproductions.rules.ccs import ccs
from reproductions.rules.dbpd import dbpd
from reproductions.rules.divbs import divbs
from reproductions.rules.dual import dual, dual_scores
from reproductions.rules.ies import ies
from reproductions.rules.orderdp import orderdp
from reproductions.rules.rs2 import rs2
from reproductions.rules.seta import seta
from reproductions.rules.srd import srd

RULES = {
    "dbpd": dbpd(0.7, end=0.8),
    "divbs": divbs(1 / 3),
    "ies": ies(0.3),
    "orderdp": orderdp(),
    "rs2": rs2(1 / 3),
    "seta": seta(groups=3, scale=0.7),
    "srd": srd(0.7, end=0.8),
}
ALL = range(40)


def chosen(strategy: sb.Strategy, losses: list[float], seed=0, window: int | None = None, *more):
    """Return the rows that the strategy's selector keeps of some candidates with these losses."""
    context = sb.selectors.Context(3, window)
    generator = torch.Generator().manual_seed(seed)
    scores, history = torch.tensor(losses), sb.selectors.History(1)
    return strategy.selector.start(context).select(scores, history, generator, *more).rows.tolist()


def recalled(strategy: sb.Strategy, ledger: sb.scorers.Ledger, epoch: int) -> np.ndarray:
    """Return the scores at the beginning of an epoch."""
    context = sb.scorers.Context(3, None, torch.nn.Identity(), lambda model, batch: batch)
    scores = strategy.scorer.start(context).recall(ledger, epoch)
    assert scores.dtype == torch.float32
    return scores.double().numpy()


def share_kept(scores: np.ndarray) -> np.ndarray:
    """Return the odds at which `Confident` keeps scores above 0."""
    return np.where(scores == -np.inf, 0.0, 2.0 * (1.0 - np.exp(-scores)))


@pytest.mark.parametrize("name", RULES)
def test_a_training_with_a_rule_continues_from_a_saved_state_bit_for_bit(name):
    check_batches(lambda seed: Training(RULES[name], seed=seed))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_published_defaults_and_bears_its_own_name(name):
    assert getattr(import_module(f"reproductions.rules.{name}"), name)().name == name


@pytest.mark.parametrize("name", RULES)
def test_only_rules_that_judge_what_they_do_not_train_on_pay_forward_passes(name):
    training = Training(RULES[name])
    for _ in range(8 if name == "ies" else 4):  # it needs six losses
        training.epoch()
    assert (training.loader.stats.scored > 0) == (name in ("dbpd", "divbs", "ies"))


def test_dbpd_keeps_candidates_whose_true_class_is_less_likely_than_the_threshold():
    losses = [0.0, 0.5, 1.2, 1.21, 3.0, float("inf")]
    expected = [row for row, loss in enumerate(losses) if exp(-loss) < 0.3]
    assert chosen(dbpd(), losses) == expected == [3, 4, 5]


def test_srd_keeps_a_share_that_shrinks_by_a_constant_factor():
    for epoch in (0, 1, 2, 30):
        odds = share_kept(recalled(srd(0.9), sb.scorers.Ledger(5), epoch))
        assert odds == pytest.approx([0.9**epoch] * 5, abs=1e-6)


@pytest.mark.parametrize("rule", ["srd", "dbpd"])
def test_progressive_dropout_trains_on_everything_at_the_end(rule):
    training = Training(RULES[rule], leftovers="flush")
    sizes = [len(flat(training.epoch())) for _ in range(5)]
    assert sizes[-1] == 40 > sizes[-2]


def test_rs2_trains_on_no_example_again_before_all_others():
    # The window of a batch of 10 is the data set of 40.
    training, turns = Training(rs2(1 / 4), loads=10), []
    for _ in range(8):
        turns += training.epoch()
    for cycle in (turns[:4], turns[4:]):
        assert sorted(flat(cycle)) == [*ALL]
    assert turns[:4] != turns[4:]


def best_groups(losses: np.ndarray, count: int) -> list[set[int]]:
    """Return the groups with the least sum of squares about their means, the lowest first."""
    order, best = np.argsort(losses), (np.inf, [])
    for cuts in combinations(range(1, len(losses)), count - 1):
        parts = [order[low:high] for low, high in pairwise((0, *cuts, len(losses)))]
        spread = sum(((losses[part] - losses[part].mean()) ** 2).sum() for part in parts)
        best = min(best, (spread, parts), key=lambda each: each[0])
    return [set(part.tolist()) for part in best[1]]


def test_seta_keeps_a_window_of_groups_that_slides_from_easy_to_hard():
    losses = np.array([5.0, 0.1, 1.0, 9.0, 0.2, 1.1, 5.2, 9.1, 0.15, 2.9, 3.1, 3.0], np.float32)
    ledger, strategy = sb.scorers.Ledger(12), seta(prune=0.2, groups=5, scale=0.6)
    known = [row for row in range(12) if row != 10]  # unknown counts as 3
    ledger.record(torch.tensor(known), torch.from_numpy(losses[known]), 0)
    groups = best_groups(np.where(np.arange(12) == 10, 3.0, losses), 5)
    assert share_kept(recalled(strategy, ledger, 0)) == pytest.approx([0.8] * 12)
    for epoch in range(1, 8):
        start = epoch % 3  # three of five groups, so the window has three places
        inside = set.union(*groups[start : start + 3])
        expected = [0.8 if row in inside else 0.0 for row in range(12)]
        assert share_kept(recalled(strategy, ledger, epoch)) == pytest.approx(expected)


def test_ies_leaves_out_examples_whose_second_differences_are_small():
    epochs, examples, threshold = 9, 6, 0.01
    made = np.random.default_rng(0)
    speed = np.array([0.02, 0.5, 0.001, 0.0, 0.3, 0.01])[:, None]
    steps = np.arange(epochs)
    noise = made.normal(scale=[[0.1], [0.001], [0.0], [0.02], [0.0], [0.2]], size=(6, epochs))
    history = 2.0 - speed * steps + noise
    history[4] = np.exp(-0.9 * steps)  # comes to rest
    history[5] = 1.0 + (steps == 0)  # at rest after a jump, four second differences before epoch 6
    history = history.astype(np.float32)
    strategy, ledger = ies(threshold), sb.scorers.Ledger(examples, depth=6)
    for epoch in range(epochs + 1):
        expected = []
        for losses in history[:, :epoch].astype(np.float64):
            bends = [abs(losses[i] - 2 * losses[i - 1] + losses[i - 2]) for i in range(2, epoch)]
            expected.append(epoch >= 6 and sum(bends[-3:]) / 3 < threshold)
        found = recalled(strategy, ledger, epoch)
        assert (found == -np.inf).tolist() == expected
        assert (found == np.inf).tolist() == [not each for each in expected]
        if epoch < epochs:  # examples that were left out have losses of forward passes
            left = torch.tensor(expected)
            losses = torch.from_numpy(history[:, epoch])
            rows = torch.arange(examples)
            ledger.hand_out(rows[~left])
            ledger.record(rows[~left], losses[~left], epoch)
            ledger.score(rows[left], losses[left], epoch)
    assert 0 < sum(expected) < examples


def test_ies_goes_on_from_a_state_saved_while_it_leaves_examples_out():
    whole, resumed, saves = Training(RULES["ies"]), Training(RULES["ies"], seed=2), []
    for _ in range(8):
        whole.epoch()
    assert whole.loader.stats.scored > 0
    batches, later = whole.epoch(after=lambda: saves.append(whole.save())), whole.epoch()
    resumed.load(saves[1])
    assert [resumed.epoch(), resumed.epoch()] == [batches[2:], later]
    assert outcome(resumed) == outcome(whole)


def test_ies_keeps_an_example_with_a_missing_loss():
    ledger = sb.scorers.Ledger(2, depth=6)
    for epoch in range(8):
        rows = torch.tensor([0] if epoch == 4 else [0, 1])
        ledger.hand_out(rows)
        ledger.record(rows, torch.ones(len(rows)), epoch)
    assert recalled(ies(), ledger, 8).tolist() == [-np.inf, np.inf]


@pytest.mark.parametrize("seed", range(5))
def test_orderdp_keeps_the_highest_losses_of_a_random_subset(seed):
    losses = torch.rand(10, generator=torch.Generator().manual_seed(9)).tolist()
    order = torch.randperm(10, generator=torch.Generator().manual_seed(seed)).tolist()
    subset = sorted(order[:8], key=lambda row: -losses[row])  # 80 % of the window
    assert chosen(orderdp(), losses, seed, window=10) == sorted(subset[:3])  # 37.5 % of these


def test_divbs_draws_by_what_rows_drawn_before_leave_of_the_sum_of_last_layer_gradients():
    torch.manual_seed(0)
    head, inputs, labels = torch.nn.Linear(6, 3), torch.randn(20, 5), torch.arange(20) % 3
    net = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), head)
    context = sb.scorers.Context(3, None, net, None, lambda model, batch: (model(batch), labels))
    _, features = divbs().scorer.start(context).score(inputs, None)
    losses = torch.nn.functional.cross_entropy(net(inputs), labels, reduction="none")
    gradients = [torch.autograd.grad(each, head.weight, retain_graph=True)[0] for each in losses]
    rows = torch.stack(gradients).flatten(1).numpy()
    np.testing.assert_allclose(features.numpy(), rows, atol=1e-6)
    rest, drawn, generator = rows.sum(0), [], torch.Generator().manual_seed(3)
    for _ in range(5):
        odds = torch.tensor(np.abs(rows @ rest) * ~np.isin(np.arange(20), drawn))
        drawn.append(int(torch.multinomial(odds, 1, generator=generator)))
        rest = rows.sum(0) - rows[drawn].T @ np.linalg.pinv(rows[drawn].T) @ rows.sum(0)
    for size in (1.0, 1e30):  # the net's gradients may be large, too
        assert chosen(divbs(), losses.tolist(), 3, 12, size * features) == sorted(drawn)  # 5 of 20


def dynamics(epochs: int = 14, examples: int = 60) -> np.ndarray:
    made = np.random.default_rng(0)
    return made.beta(np.linspace(0.5, 8, examples), 2.0, size=(epochs, examples))


def test_dual_scores_are_mean_products_of_deviation_and_difficulty():
    made = dynamics()
    expected = []
    for own in made.T:
        windows = [own[start : start + 10] for start in range(len(own) - 9)]
        products = [np.std(each, ddof=1) * (1 - np.mean(each)) for each in windows]
        expected.append(np.mean(products))
    assert dual_scores(torch.from_numpy(made)).numpy() == pytest.approx(np.array(expected))


def test_dual_draws_in_proportion_to_its_scores_and_a_beta_density():
    made, keep = dynamics(), 0.2
    scores, mean = dual_scores(torch.from_numpy(made)).numpy(), made.mean(0)
    hardest = np.mean(mean[np.argsort(scores)[-10:]])
    b = 15 * (1 - hardest) * (1 - 0.8**4)
    odds = stats.beta.pdf(mean, 16 - b, b) * scores
    first = torch.from_numpy(odds / odds.sum())
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        expected = torch.multinomial(first, 12, generator=generator).sort().values
        subset = dual(torch.from_numpy(made), keep, seed=seed).subset
        assert subset.indices.tolist() == expected.tolist()
        assert (subset.cost, subset.examples) == (14.0, 60)


def test_ccs_drops_the_hardest_and_shares_its_budget_among_strata():
    made = np.random.default_rng(0).exponential(size=200)
    scores = sb.ExampleScores(torch.from_numpy(made), source="made up", cost=2.0)
    subset = ccs(scores, 0.3, cutoff=0.1, strata=8).subset
    easier = np.sort(made)[:180]
    edges = np.linspace(easier[0], easier[-1], 9)
    sizes = [
        sum(low <= each < high or each == high == easier[-1] for each in easier)
        for low, high in pairwise(edges)
    ]
    wanted, budgets = 60, {}
    for done, stratum in enumerate(sorted(range(8), key=sizes.__getitem__)):
        budgets[stratum] = min(sizes[stratum], wanted // (8 - done))
        wanted -= budgets[stratum]
    kept = made[subset.indices.numpy()]
    assert kept.max() <= easier[-1]
    found = [
        sum(low <= each < high or each == high == easier[-1] for each in kept)
        for low, high in pairwise(edges)
    ]
    assert found == [budgets[stratum] for stratum in range(8)]
    assert (len(subset), subset.cost) == (60, 2.0)
    assert ccs(scores, 0.3, cutoff=0.1, strata=8, seed=1).subset != subset
    assert len(ccs(scores, 0.1).subset) == ceil(0.1 * 200)
