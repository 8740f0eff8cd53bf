"""What changes training in TRL's trainers: answers kept, prompts refilled and prompts that rest."""

from collections import Counter

import pytest
import torch

pytest.importorskip("trl")

import fixture_text as text
from fixture_rollouts import FewerGRPO, FewerRLOO, Noting, logged, prepare, train
from trl import GRPOTrainer
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.integrations.trl import NonzeroRollouts

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
ONE = {"num_iterations": 1, "max_steps": 1}


class Keeping(Noting, GRPOTrainer):
    """Note what the loss is computed of."""

    def _compute_loss(self, model, inputs):
        self.given = [*getattr(self, "given", []), inputs]
        return super()._compute_loss(model, inputs)


class Fewer(NonzeroRollouts, Keeping):
    pass


class Teaching:
    """Rewards by prompt: four answers to `abc` and `bcd` get different ones, others the same."""

    __name__ = "teaching"

    def __init__(self, **rewards):
        self.asked, self.rewards = [], rewards or {"abc": [0, 1, 2, 3], "bcd": [0, 1, 2, 3]}

    def __call__(self, prompts, completions, **_):
        self.asked.append(list(prompts[::4]))
        rewards = [self.rewards.get(prompt, [1] * 4) for prompt in prompts]
        return [float(each[n % 4]) for n, each in enumerate(rewards)]


@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_of_each_prompt_s_answers_those_of_highest_variance_are_trained_on(tmp_path, loss_type):
    def reward(completions, **_):
        return [float([0, 3, 1, 7][n % 4]) for n in range(len(completions))]

    def reward_of_two(completions, **_):  # as if nobody scored the two that are not kept
        return [[0.0, None, None, 7.0][n % 4] for n in range(len(completions))]

    kept = train(Fewer, tmp_path, reward=reward, ours={"keep": 2}, loss_type=loss_type, **ONE)
    two = train(Fewer, tmp_path, reward=reward_of_two, loss_type=loss_type, **ONE)
    assert (kept.rows, logged(kept, "rollouts/generated")) == ([4, 4], [16])
    assert logged(kept, "reward") == [2.75]  # of all answers
    given, wanted = (
        torch.cat([batch["advantages"] for batch in made.given]) for made in (kept, two)
    )
    if loss_type == "grpo":  # TRL divides by rows that nobody scores, too
        torch.testing.assert_close(given, 2 * wanted)
    else:
        torch.testing.assert_close(given, wanted)
        tokens = sum(batch["completion_mask"].sum() for batch in kept.given)
        assert kept.given[0]["num_items_in_batch"] == tokens
        assert two.given[0]["num_items_in_batch"] > tokens


@pytest.mark.parametrize("kind", [Fewer, FewerRLOO])
def test_answers_that_nobody_scores_are_kept_last_and_do_not_count_as_rewards(tmp_path, kind):
    class Scoring(kind):
        def _drop(self, rollouts, kept):
            super()._drop(rollouts, kept)
            self.advantages = rollouts["advantages"].view(-1, 4)

    def reward(completions, **_):
        assert len(completions) == 16
        return [None, 0, 1, 7, None, None, None, 2, None, 3, None, 9, *[None] * 4]

    made = train(Scoring, tmp_path, reward=reward, ours={"keep": 2}, **ONE)
    chosen = [[False, True, False, True], [False] * 4, [False, True, False, True], [False] * 4]
    assert (made.advantages != 0).tolist() == chosen
    assert made.advantages.sum().item() == pytest.approx(0, abs=1e-5)
    assert logged(made, "reward") == [pytest.approx((0 + 1 + 7 + 2 + 3 + 9) / 6)]


def test_prompts_without_a_gradient_make_room_for_others_as_often_as_is_allowed(tmp_path):
    reward, options = Teaching(), ONE | {"max_steps": 3}
    made = train(Fewer, tmp_path, reward=reward, ours={"refills": 2}, **options)
    asked, trained = iter(reward.asked), [0]
    for _ in range(3):
        lacking = 4
        for _ in range(3):
            if lacking:
                prompts = next(asked)
                assert len(prompts) == lacking
                lacking -= sum(prompt in reward.rewards for prompt in prompts)
        trained.append(trained[-1] + (4 * (4 - lacking) or 1))
    assert next(asked, None) is None
    assert len(reward.asked) > 3
    assert logged(made, "rollouts/trained") == trained[1:]
    assert logged(made, "rollouts/generated")[-1] == 4 * sum(map(len, reward.asked))
    assert logged(made, "num_tokens")[-1] == made.state.num_input_tokens_seen
    assert logged(made, "refills/reward")
    for batch in made.given:  # rows hang together wherever they come from
        assert batch["completion_mask"].any(1).all()
        assert (batch["prompt_mask"].sum(1) == 3).all()
        lengths = {len(batch[key]) for key in ("prompt_ids", "completion_mask", "advantages")}
        assert len(lengths) == 1


def test_prompts_of_a_band_of_mean_rewards_are_trained_on(tmp_path):
    reward = Teaching(abc=[0, 0, 0, 1], bcd=[0, 1, 0, 1], cde=[1, 1, 1, 0])
    ours = {"pass_rate": (0.3, 0.7), "refills": 3}
    made = train(Fewer, tmp_path, reward=reward, ours=ours, **ONE)
    found = sum(prompts.count("bcd") for prompts in reward.asked)
    assert sum(made.rows) == (4 * min(found, 4) or 1)
    advantages = torch.cat([batch["advantages"] for batch in made.given]).abs()
    assert advantages.tolist() == pytest.approx([advantages.max().item()] * len(advantages))


def test_prompts_that_taught_nothing_rest_from_the_next_pass_on(tmp_path):
    reward, resting = Teaching(), sb.RestingPrompts(48, explore=1e-9, least=1e-9)
    options = {"num_iterations": 1, "max_steps": 16, "max_completion_length": 2}
    train(FewerRLOO, tmp_path, reward=reward, ours={"rest": resting}, **options)
    first = Counter(prompt for prompts in reward.asked[:12] for prompt in prompts)
    assert set(first.values()) == {8}  # each of 48
    later = [prompt for prompts in reward.asked[12:] for prompt in prompts]
    # The pass begins while the last batch of the one before is still to be answered.
    assert sum(prompt not in reward.rewards for prompt in later) <= 4
    assert (resting.odds < 1).sum() >= 32


def test_what_rests_is_saved_and_training_goes_on_from_it(tmp_path):
    options = {"num_iterations": 1, "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    made, saved = [], tmp_path / "checkpoint-2"
    for resume in (None, str(saved)):
        rest = sb.RestingPrompts(48, explore=0.1, least=0.05)
        each = prepare(FewerGRPO, tmp_path, ours={"rest": rest, "refills": 1}, **options)
        each.train(resume_from_checkpoint=resume)
        made.append((text.weights(each), rest))
    (whole, before), (resumed, after) = made
    torch.testing.assert_close(resumed, whole, rtol=0, atol=1e-6)
    assert before.odds.tolist() == after.odds.tolist() != [1.0] * 48
    assert [*before] == [*after]
    (saved / "prompts.pt").unlink()
    again = prepare(FewerGRPO, tmp_path, ours={"refills": 1}, **options)
    with pytest.raises(sb.ConfigurationError, match=r"prompts\.pt is missing"):
        again.train(resume_from_checkpoint=str(saved))


@pytest.mark.parametrize(
    ("ours", "options", "words"),
    [
        ({"keep": 1}, {}, r"keep=1.*\[2, 4\]"),
        ({"keep": 5}, {}, r"keep=5.*\[2, 4\]"),
        ({"keep": 2}, {"loss_type": "bnpo"}, "'bnpo'.*keep=2"),
        ({"pass_rate": (0.8, 0.2)}, {}, "pass_rate"),
        ({"refills": -1}, {}, "refills=-1"),
        ({"refills": 1}, {"scale_rewards": "batch"}, "scale_rewards='batch'.*refills=1"),
        ({"refills": 1}, {"shuffle_dataset": False}, "shuffle_dataset"),
        ({"rest": sb.RestingPrompts(47)}, {}, "47 prompts.* 48"),
        ({"rest": 0.5}, {}, "rest=0.5.*RestingPrompts"),
    ],
)
def test_what_is_out_of_range_or_cannot_be_combined_is_refused(tmp_path, ours, options, words):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=words):
        prepare(FewerGRPO, tmp_path, ours=ours, **options)
