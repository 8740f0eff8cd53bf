"""TRL's trainers, in half a minute: an update equals TRL's, each option works, training resumes."""

from collections import Counter

import pytest
import torch

pytest.importorskip("trl")

import fixture_rollouts as trl
import fixture_text as text
import transformers
from fixture_rollouts import both, check_alike, logged, own_tokens, prepare, train, use_tool
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.integrations._trl import _regrouping as regrouping

# What TRL itself still asks of Transformers.
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")

ONE = {"num_iterations": 1, "max_steps": 1}
REFERENCE = "ref_per_token_logps"


def slow(*values):
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


LOSSES = slow("bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo", "rloo")


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", *LOSSES])
def test_the_policy_and_its_curves_are_those_of_the_trainer_to_rounding(tmp_path, loss_type):
    for tool in (None, use_tool):
        plain, fewer = both(tmp_path, loss_type=loss_type, tool=tool)
        check_alike(plain, fewer)
        widths = ([x["completion_ids"].shape[1] for x in made.given] for made in (fewer, plain))
        assert max(next(widths)) <= max(next(widths))
        assert sum(fewer.passed) < sum(plain.passed)


class OfTrained(trl.PlainGRPO):
    """TRL's loss, with the penalty of answers that have an advantage, by hand."""

    def _compute_loss(self, model, inputs):
        if self.beta:  # at the policy itself, the penalty and its gradient are 0
            parts = [(inputs[f"prompt_{x}"], inputs[f"completion_{x}"]) for x in ("ids", "mask")]
            whole, width = (torch.cat(part, 1) for part in parts), parts[0][1].shape[1]
            with torch.no_grad():
                logs, *_ = self._get_per_token_logps_and_entropies(model, *whole, width)
            logs = torch.where(teaches(inputs)[:, None], inputs[REFERENCE], logs)
            inputs = inputs | {REFERENCE: logs}
        return super()._compute_loss(model, inputs)


def teaches(batch):
    return (batch["advantages"].abs() > 1e-3) & (own_tokens([batch]) > 0)


@pytest.mark.parametrize(
    "loss_type", ["grpo", *slow("bnpo", "dr_grpo", "luspo", "sapo", "dapo", "cispo")]
)
def test_the_penalty_may_be_of_trained_answers_alone(tmp_path, loss_type):
    text.speaker(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0).save_pretrained(tmp_path)
    options = {"beta": 0.3, "loss_type": loss_type, "tool": use_tool, "learning_rate": 0.05}

    def trained(kind, **ours):
        asked = []

        def reward(completions, **_):  # what is generated second teaches nothing
            asked.append(completions)
            return [found * (len(asked) < 2) for found in trl.has_one_twice(completions)]

        model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
        return train(kind, tmp_path, model=model, reward=reward, ours=ours, **options)

    plain, fewer = trained(OfTrained), trained(trl.FewerGRPO, beta_on="trained")
    check_alike(plain, fewer)
    assert fewer.rows[-1] == 1  # and it counts nothing
    assert sum(fewer.passed) < sum(plain.passed) / 2
    left = [(~teaches(each) & (own_tokens([each]) > 0)).sum() for each in plain.given]
    assert logged(fewer, "rollouts/without_kl") == [sum(left[:4]), sum(left[4:8]), sum(left[4:])]


@pytest.mark.parametrize("loss_type", ["dapo", *slow("grpo", "bnpo")])
def test_the_mean_may_be_of_trained_answers_alone_or_of_their_tokens(tmp_path, loss_type):
    options = {"loss_type": loss_type, "tool": use_tool, **ONE}
    made = [train(trl.FewerGRPO, tmp_path, ours={"mean": x}, **options) for x in ("all", "trained")]
    tokens, every = own_tokens(made[0].given), made[0].given[0]["num_items_in_batch"]
    ratio = 16 / len(tokens) if loss_type == "grpo" else every / tokens.sum()
    whole, moved = (text.weights(each) - each.before for each in made)
    torch.testing.assert_close(moved, ratio * whole, rtol=0, atol=1e-6)
    assert ratio > 1.2


def test_adapters_of_peft_train_alike(tmp_path):
    peft = pytest.importorskip("peft")
    options = {"target_modules": ["c_attn"], "fan_in_fan_out": True, "init_lora_weights": False}
    for beta in (0.0, 0.3):  # the reference is the model without its adapter
        made = []
        for kind, more in (OfTrained, {}), (trl.FewerGRPO, {"beta_on": "trained"}):
            torch.manual_seed(0)
            ours = {"peft_config": peft.LoraConfig(r=4, **options), **more}
            made.append(train(kind, tmp_path, tool=use_tool, beta=beta, ours=ours))
        check_alike(*made)


@pytest.mark.parametrize("kinds", [(trl.PlainGRPO, trl.FewerGRPO), (trl.PlainRLOO, trl.FewerRLOO)])
def test_images_of_prompts_move_with_their_rows(tmp_path, kinds):
    def reward(completions, **_):
        return [float(n % 2 and n % 8 < 4) for n in range(len(completions))]

    made = [train(kind, tmp_path, model=trl.with_images(), reward=reward) for kind in kinds]
    check_alike(*made)
    assert sum(made[1].passed) < sum(made[0].passed)
    more = {"ours": {"refills": 1, "replay": 4}, "max_steps": 3, "num_iterations": 1}
    more = train(kinds[1], tmp_path, model=trl.with_images(), reward=reward, **more)
    assert logged(more, "rollouts/replayed")[-1] > 0
    for each in (*made[1].given, *more.given):
        assert len(each["pixel_values"]) == sum(each["num_images"])


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        *((40, ["image_grid_thw"]), (5, ["image_position_ids"]), (5, ["image_sizes"])),
        *((7, ["num_tiles"]), (7, ["num_tiles", "pixel_attention_mask", "spatial_shapes"])),
        (3, ["pixel_attention_mask", "token_type_ids"]),
    ],
)
def test_tensors_of_images_belong_to_rows_in_every_layout_of_trl(rows, names):
    known = {"image_grid_thw": torch.full((5, 3), 2), "num_tiles": [3, 0, 4]}
    known |= {"token_type_ids": torch.rand(3, 6)}
    batch = {name: known.get(name, torch.rand(rows, 3)) for name in ("pixel_values", *names)}
    batch |= {name: torch.rand(3, 3) for name in ("prompt_ids", "completion_ids")}
    batch |= {"num_images": [2, 0, 3]}
    split = regrouping.split_images({**batch})
    assert [row["num_images"] for row in split["images"]] == [2, 0, 3]
    found = regrouping.join_images(split)
    for name, value in batch.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0)


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

    options = {"loss_type": loss_type, **ONE}
    kept = train(trl.FewerGRPO, tmp_path, reward=reward, ours={"keep": 2}, **options)
    two = train(trl.FewerGRPO, tmp_path, reward=reward_of_two, **options)
    assert (kept.rows, logged(kept, "rollouts/generated")) == ([4, 4], [16])
    assert logged(kept, "reward") == [2.75]  # of all answers
    given, wanted = (torch.cat([x["advantages"] for x in made.given]) for made in (kept, two))
    torch.testing.assert_close(given, wanted)
    if loss_type == "grpo":  # TRL divides by rows that nobody scores, too
        assert kept.given[0]["loss_scale"] == 2 * two.given[0]["loss_scale"]
    else:
        tokens = sum(batch["completion_mask"].sum() for batch in kept.given)
        assert kept.given[0]["num_items_in_batch"] == tokens
        assert two.given[0]["num_items_in_batch"] > tokens


@pytest.mark.parametrize("kind", [trl.FewerGRPO, trl.FewerRLOO])
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
    made = train(trl.FewerGRPO, tmp_path, reward=reward, ours={"refills": 2}, **options)
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
        assert len(batch["prompt_ids"]) == len(batch["completion_mask"]) == len(batch["advantages"])


class Again(trl.PlainGRPO):
    """TRL's trainer, which trains again on what was generated first, by hand."""

    def _generate_and_score_completions(self, inputs):
        found = super()._generate_and_score_completions(inputs)
        self.first = getattr(self, "first", None) or found
        tokens = own_tokens([self.first])[:8].sum() + own_tokens([found])[8:].sum()
        return self.first | {"num_items_in_batch": tokens}


@pytest.mark.parametrize("loss_type", ["dapo", *slow("grpo")])
def test_groups_that_taught_are_replayed_with_ratios_to_their_policy(tmp_path, loss_type):
    def trained(kind, steps=4, **ours):
        asked = []

        def reward(completions, **_):  # of four groups two teach, and later ones nothing
            asked.append(completions)
            return [float(n % 2 and n < 8 and len(asked) == 1) for n in range(len(completions))]

        options = {"loss_type": loss_type, "max_steps": steps, "ours": ours, "tool": use_tool}
        return train(kind, tmp_path, reward=reward, **options)

    plain, ours = trained(Again), trained(trl.FewerGRPO, replay=2)
    assert (text.weights(plain) - plain.before).abs().max() > 1e-3
    torch.testing.assert_close(text.weights(ours), text.weights(plain), rtol=0, atol=1e-6)
    assert logged(ours, "rollouts/replayed") == [0, 0, 8, 8]
    fewer = trained(trl.FewerGRPO, 7, replay=1, replay_age=2)
    assert logged(fewer, "rollouts/replayed") == [0, 0, 4, 4, 8, 8, 8]
    fewer.train()  # a training begins without them
    assert logged(fewer, "rollouts/replayed") == [0] * 7


def test_prompts_of_a_band_of_mean_rewards_are_trained_on(tmp_path):
    reward = Teaching(abc=[0, 0, 0, 1], bcd=[0, 1, 0, 1], cde=[1, 1, 1, 0])
    ours = {"pass_rate": (0.3, 0.7), "refills": 3}
    made = train(trl.FewerGRPO, tmp_path, reward=reward, ours=ours, **ONE)
    found = sum(prompts.count("bcd") for prompts in reward.asked)
    assert sum(made.rows) == (4 * min(found, 4) or 1)
    advantages = torch.cat([batch["advantages"] for batch in made.given]).abs()
    assert advantages.tolist() == pytest.approx([advantages.max().item()] * len(advantages))


def test_prompts_that_taught_nothing_rest_from_the_next_pass_on(tmp_path):
    reward, resting = Teaching(), sb.RestingPrompts(48, explore=1e-9, least=1e-9)
    options = {"num_iterations": 1, "max_steps": 16, "max_completion_length": 2}
    train(trl.FewerRLOO, tmp_path, reward=reward, ours={"rest": resting}, **options)
    first = Counter(prompt for prompts in reward.asked[:12] for prompt in prompts)
    assert set(first.values()) == {8}  # each of 48
    later = [prompt for prompts in reward.asked[12:] for prompt in prompts]
    # The pass begins while the last batch of the one before is still to be answered.
    assert sum(prompt not in reward.rewards for prompt in later) <= 4
    assert (resting.odds < 1).sum() >= 32


@pytest.mark.parametrize("rests", [False, True])
def test_training_goes_on_from_a_checkpoint_with_what_rests(tmp_path, rests):
    options = {"num_iterations": 1, "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    made, saved = [], tmp_path / "checkpoint-2"
    for resume in (None, str(saved)):
        rest = sb.RestingPrompts(48, explore=0.1, least=0.05)
        ours = {"rest": rest, "refills": 1} if rests else {}
        each = prepare(trl.FewerGRPO, tmp_path, ours=ours, **options)
        each.train(resume_from_checkpoint=resume)
        made.append((each, rest))
    (whole, before), (resumed, after) = made
    torch.testing.assert_close(*(text.weights(each) for each, _ in made), rtol=0, atol=1e-6)
    assert whole.rows == [*whole.rows[: -len(resumed.rows)], *resumed.rows]
    assert before.odds.tolist() == after.odds.tolist()
    assert (bool((before.odds < 1).any()), [*before]) == (rests, [*after])
    if rests:
        (saved / "prompts.pt").unlink()
        with pytest.raises(sb.ConfigurationError, match=r"prompts\.pt is missing"):
            each.train(resume_from_checkpoint=str(saved))
    else:
        assert logged(resumed, "rollouts/generated")[-2:] == [16, 32]  # since it was resumed


@pytest.mark.parametrize(
    ("ours", "options", "words"),
    [
        ({"keep": 1}, {}, r"keep=1.*\[2, 4\]"),
        ({"keep": 5}, {}, r"keep=5.*\[2, 4\]"),
        ({"keep": 2}, {"loss_type": "bnpo"}, "'bnpo'.*keep="),
        ({"pass_rate": (0.8, 0.2)}, {}, "pass_rate"),
        ({"refills": -1}, {}, "refills=-1"),
        ({"replay_age": 0}, {}, "replay_age=0"),
        ({"refills": 1}, {"scale_rewards": "batch"}, "scale_rewards='batch'.*refills=1"),
        ({"refills": 1}, {"shuffle_dataset": False}, "shuffle_dataset"),
        ({"rest": sb.RestingPrompts(47)}, {}, "47 prompts.* 48"),
        ({"rest": 0.5}, {}, "rest=0.5.*RestingPrompts"),
        ({"mean": "some"}, {}, "mean='some'.*'all' or 'trained'"),
        ({}, {"loss_type": "new"}, r"loss_type='new'.* bnpo, cispo"),
        ({}, {"vllm_importance_sampling_mode": "new"}, r"mode='new'.* sequence_mask"),
    ],
)
def test_what_is_out_of_range_or_cannot_be_combined_is_refused(tmp_path, ours, options, words):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=words):
        prepare(trl.FewerGRPO, tmp_path, ours=ours, **options)
