"""TRL's GRPOTrainer and RLOOTrainer train as they do, on fewer completions."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("trl")

import fixture_rollouts as trl
import fixture_text as text
import transformers
from fixture_rollouts import Noting, both, check_alike, experts, logged, prepare, train, use_tool
from trl import GRPOTrainer

import selective_backprop as sb
from selective_backprop.integrations._trl._checks import MODES
from selective_backprop.integrations.trl import NonzeroRollouts

warns = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
pytestmark = [pytest.mark.slow, warns]


def check_the_same(plain, fewer):
    """Both trained alike bit for bit, on the same rows, and logged the same."""
    assert torch.equal(text.weights(fewer), text.weights(plain))
    assert (text.weights(plain) - plain.before).abs().max() > 1e-3
    assert fewer.rows == plain.rows
    assert [*map(dict.keys, fewer.state.log_history)] == [*map(dict.keys, plain.state.log_history)]


@pytest.mark.parametrize("size", [1, 4, 16])
def test_an_update_trains_on_no_more_than_the_rows_with_a_gradient(tmp_path, size):
    # Two groups of eight are an update; half of the answers to the first are right.
    def reward(completions, **_):
        return [float(n % 2 and n < 8) for n in range(len(completions))]

    options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 16 // size}
    options |= {"num_generations": 8, "loss_type": "bnpo", "num_iterations": 1}
    plain, fewer = both(tmp_path, reward=reward, **options)
    check_alike(plain, fewer)
    assert plain.rows == [size] * (16 // size) * 3
    assert fewer.rows == [min(size, 8)] * (8 // min(size, 8)) * 3
    assert logged(fewer, "rollouts/generated") == [16, 32, 48]
    assert logged(fewer, "rollouts/trained") == [8, 16, 24]
    means = torch.tensor(logged(plain, "completions/mean_length"))
    assert logged(fewer, "rollouts/tokens") == pytest.approx((16 * means.cumsum(0)).tolist())


@pytest.mark.parametrize(
    ("generated", "accumulated", "loss_type"),
    [(1, 4, "grpo"), (4, 2, "dapo"), (4, 6, "bnpo"), (8, 4, "grpo"), (3, 2, "dapo")],
)
def test_updates_and_generation_batches_may_differ(tmp_path, generated, accumulated, loss_type):
    options = {"steps_per_generation": generated, "gradient_accumulation_steps": accumulated}
    check_alike(*both(tmp_path, loss_type=loss_type, max_steps=4, **options))


def test_old_log_probabilities_are_of_rows_that_are_trained_on_also_with_checkpoints(tmp_path):
    plain, fewer = both(tmp_path, gradient_checkpointing=True)
    check_alike(plain, fewer)
    assert plain.passed == [16, 16]  # once for two iterations on what was generated
    assert sum(fewer.rows) == fewer.passed[0] * 2 + fewer.passed[1]


@pytest.mark.parametrize("mode", MODES)
def test_log_probabilities_of_vllm_are_corrected_alike(tmp_path, mode):
    # Of each completion one log-probability is missing, as they sometimes are.
    def sample(prompts, trainer):
        found = use_tool(prompts, trainer)
        return found | {"logprobs": [[*logs[:-1], None] for logs in found["logprobs"]]}

    loss_type = "vespo" if mode == "token_truncate" else "dapo"
    options = {"tool": sample, "loss_type": loss_type, "max_steps": 2}
    options |= {"vllm_importance_sampling_mode": mode, "vllm_importance_sampling_clip_min": 0.2}
    plain, fewer = (prepare(kind, tmp_path, **options) for kind in (trl.PlainGRPO, trl.FewerGRPO))
    for made in (plain, fewer):
        made.use_vllm, made._last_loaded_step = True, 0
        made.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
        made.train()
    check_alike(plain, fewer)
    assert sum(fewer.passed) < sum(plain.passed)
    for name in ("sampling_logp_difference", "importance_sampling_ratio"):
        assert len(logged(plain, f"sampling/{name}/mean")) == 1
        assert not logged(fewer, f"sampling/{name}/mean")
        assert logged(fewer, f"trained/sampling/{name}/mean")[0] > 0


def test_equal_rewards_whose_mean_is_rounded_and_unscored_completions_have_no_gradient(tmp_path):
    def reward(completions, **_):
        return [0.1 if n < 12 else 0.1 * (n % 2) for n in range(len(completions))]

    options = {"reward": reward, "num_generations": 12, "per_device_train_batch_size": 12}
    options |= {"gradient_accumulation_steps": 2, "max_steps": 1}
    plain, fewer = both(tmp_path, **options)
    assert torch.tensor(plain._logs["advantages"])[:12].count_nonzero() == 12
    check_alike(plain, fewer, within=1e-5)  # the noise that TRL trains on
    assert fewer.rows == [12]

    def of_half(completions, **_):
        return [None if n % 4 < 2 else float(n % 2) for n in range(len(completions))]

    plain, fewer = both(tmp_path, reward=of_half, num_iterations=1)
    check_alike(plain, fewer)
    assert fewer.rows == [4, 4] * 3


def test_several_rewards_are_summed_or_compared_one_by_one(tmp_path):
    def odd(completions, **_):
        return [float(n % 2) for n in range(len(completions))]

    def even(completions, **_):
        return [float(1 - n % 2) if n >= 4 else None for n in range(len(completions))]

    options = {"reward": [odd, even], "max_steps": 1, "num_iterations": 1}
    plain, fewer = both(tmp_path, **options)
    check_alike(plain, fewer)
    assert fewer.rows == [4]  # of the first prompt; others' sums are 1
    options |= {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.5]}
    for accumulated, rows in ((4, [4] * 4), (1, [4])):
        plain, fewer = both(tmp_path, gradient_accumulation_steps=accumulated, **options)
        torch.testing.assert_close(text.weights(fewer), text.weights(plain), rtol=0, atol=1e-6)
        assert fewer.rows == plain.rows == rows


def test_advantages_of_a_subclass_s_own_count(tmp_path):
    class Own(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            found = super()._generate_and_score_completions(inputs)
            return found | {"advantages": torch.ones_like(found["completion_ids"]) / 2}

    kinds = type("Plain", (Noting, Own), {}), type("Fewer", (NonzeroRollouts, Noting, Own), {})
    plain, fewer = both(tmp_path, kinds, reward=lambda completions, **_: [0.0] * len(completions))
    assert fewer.rows == plain.rows
    torch.testing.assert_close(text.weights(fewer), text.weights(plain), rtol=0, atol=1e-6)


def test_where_nothing_has_a_gradient_momentum_and_decay_act_as_they_did(tmp_path):
    seen = []

    def reward(completions, **_):
        seen.append(len(completions))
        return [float(n % 2 and len(seen) % 2) for n in range(len(completions))]

    options = {"optim": "adamw_torch", "weight_decay": 0.1, "max_steps": 4, "learning_rate": 1e-2}
    plain, fewer = both(tmp_path, reward=reward, num_iterations=1, **options)
    assert fewer.rows == [4] * 4 + [1] + [4] * 4 + [1]  # each asks four times
    torch.testing.assert_close(text.weights(fewer), text.weights(plain), rtol=0, atol=1e-4)


def test_where_all_tokens_are_the_tool_s_nothing_changes(tmp_path):
    def use_tool_alone(prompts, trainer):
        found = use_tool(prompts, trainer)
        return found | {"env_mask": [[0] * len(own) for own in found["env_mask"]]}

    fewer = train(trl.FewerGRPO, tmp_path, loss_type="bnpo", tool=use_tool_alone)
    assert fewer.rows == [1, 1, 1]
    assert torch.equal(text.weights(fewer), fewer.before)


def test_metrics_of_the_trained_completions_are_named_so_and_evaluation_is_trl_s(tmp_path):
    plain, fewer = both(tmp_path, max_steps=1)
    for name in ("entropy", "clip_ratio/region_mean"):
        assert len(logged(plain, name)) == len(logged(fewer, f"trained/{name}")) == 1
        assert not logged(fewer, name)
    results = []
    for made in (plain, fewer):
        torch.manual_seed(3)
        results.append(made.evaluate())
    for name in ("eval_loss", "eval_reward", "eval_entropy"):
        assert results[1][name] == pytest.approx(results[0][name], abs=1e-6)


EVERY = {"beta": 0.1, "top_entropy_quantile": 0.5, "entropy_coef": 0.1}
EVERY |= {"use_adaptive_entropy": True, "router_aux_loss_coef": 0.1}


@pytest.mark.parametrize("option", [*EVERY, "beta of RLOO"])
def test_a_loss_in_which_every_completion_counts_is_trl_s(tmp_path, option):
    experts().save_pretrained(tmp_path)  # from where TRL takes the reference model of `beta`
    option, _, rloo = option.partition(" ")
    plain, fewer = (trl.PlainRLOO, trl.FewerRLOO) if rloo else (trl.PlainGRPO, trl.FewerGRPO)
    chosen = {"router_aux_loss_coef": 0.0} | {option: EVERY[option]}

    def trained(kind, **options):
        model = transformers.MixtralForCausalLM.from_pretrained(tmp_path)
        return train(kind, tmp_path, model=model, **chosen, **options)

    words = f"{option}={EVERY[option]} .*%s Set {option}="
    with pytest.warns(sb.SelectionWarning, match=words % ""):
        made = trained(fewer)
    check_the_same(trained(plain), made)
    with pytest.raises(sb.ConfigurationError, match=words % "keep=.*"):
        trained(fewer, ours={"keep": 2})
    if rloo:
        with pytest.raises(sb.ConfigurationError, match=r"RLOO .*Set beta=0\.0"):
            trained(fewer, ours={"beta_on": "trained"})


def test_deepspeed_gets_no_empty_micro_batch_as_it_counts_backward_passes(tmp_path):
    class Engine(trl.FewerGRPO):
        def _regroup(self, batches):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(self, "is_deepspeed_enabled", True)
                return super()._regroup(batches)

    plain, fewer = (train(kind, tmp_path) for kind in (trl.PlainGRPO, Engine))
    check_alike(plain, fewer)
    assert len(fewer.rows) == len(plain.rows)


def test_a_mixture_of_experts_without_a_router_s_loss_trains_alike(tmp_path):
    kinds, options = (trl.PlainGRPO, trl.FewerGRPO), {"router_aux_loss_coef": 0.0}
    check_alike(*(train(kind, tmp_path, model=experts(), **options) for kind in kinds))
