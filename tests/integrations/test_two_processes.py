"""Two processes under Trainers, Lightning and Accelerate: equal steps, equal weights, resumed.

They run this file under torch.distributed.run.
"""

import os
import re
import subprocess
import sys
import warnings
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import distributed

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENGINES = ("fsdp1", "fsdp2", "zero2", "zero3")


def run(task, folder, framework):
    """What each of two processes said, by name."""
    for needed in (framework, *["deepspeed"] * ("zero" in task)):
        pytest.importorskip(needed)
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = (ROOT / "src", ROOT / "tests" / "fixtures", HERE, os.environ.get("PYTHONPATH", HERE))
    environment = os.environ | {
        **{"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"},
        **{"CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", "HOME": str(folder)},
    }
    command = [sys.executable, *start, __file__, task, str(folder / "saved")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-6000:]
    said = {}
    for name, rank, words in re.findall(r"^(\w+) (\d): (.*)$", ended.stdout, re.MULTILINE):
        said.setdefault(name, {})[rank] = words.split()
    assert all(ranks["0"] == ranks["1"] for ranks in said.values())  # they step together
    return {name: ranks["0"] for name, ranks in said.items()}


def test_the_trainer_s_processes_take_equal_steps_and_go_on_from_a_checkpoint(tmp_path):
    said = run("trainer", tmp_path, "transformers")
    steps, candidates, _, same = said["trainer"]
    # of 32 examples a process: 8 batches, 4 and 4, in updates of 2
    assert (steps, candidates, same) == ("8", "96", "True")
    assert said["weighed"] == ["True"]


def test_processes_that_train_on_packed_documents_agree_and_go_on_from_a_checkpoint(tmp_path):
    said = run("sft", tmp_path, "trl")
    steps, candidates, _, same = said["sft"]
    # of 32 documents a process in two epochs: 6 windows of 10, of which 5 each, in updates of 2
    assert (steps, candidates, same) == ("3", "64", "True")
    assert said["weighed"] == ["True"]


def test_processes_that_leave_out_completions_train_as_the_trainer_s_own(tmp_path):
    said = run("grpo", tmp_path, "trl")
    for loss in ("bnpo", "dapo", "rloo"):
        _, rows, of_all, alike = said[loss]
        assert (int(rows) < int(of_all), alike) == (True, "True"), loss


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", ["sharded", "selected", "looped"])
def test_processes_that_shard_the_model_train_as_without_and_go_on(tmp_path, task, engine):
    refused = pytest.raises(AssertionError, match="Use FSDP2")
    with refused if (task, engine) == ("selected", "fsdp1") else nullcontext():
        said = run(f"{task}_{engine}", tmp_path, "accelerate" if task == "looped" else "trl")
        assert {word for words in said.values() for word in words if word.isalpha()} == {"True"}


def test_processes_that_refill_and_rest_prompts_agree_and_go_on_from_a_checkpoint(tmp_path):
    _, rows, resting, same = run("rollouts", tmp_path, "trl")["rollouts"]
    assert (int(rows) > 0, int(resting) > 0, same) == (True, True, "True")


def test_lightning_s_processes_share_the_data_stay_together_and_go_on_bit_for_bit(tmp_path):
    said = run("lightning", tmp_path, "lightning")
    assert {name: held for name, (_, *held) in said.items()} == dict.fromkeys(
        ("selective", "coins", "recorded"), ["True"] * 5
    )


def test_a_loop_under_accelerate_does_so_too(tmp_path):
    said = run("loop", tmp_path, "accelerate")
    batches, steps, _, same = said["loop"]
    # of 50 examples a process, in windows of 16: 3, 3 and 3 batches, stepped on at each end
    assert (batches, steps, same) == ("9", "6", "True")
    assert said["files"] == ["selection-0-of-2.pt", "selection-1-of-2.pt"]


def say(name: str, *values: object) -> None:
    # in one piece, as two processes write to one pipe
    sys.stdout.write(f"\n{name} {distributed.get_rank()}: {' '.join(map(str, values))}\n")
    sys.stdout.flush()


def trainer(folder: Path) -> None:
    import fixture_text as text

    options = {"num_train_epochs": 3, "gradient_accumulation_steps": 2, "ddp_backend": "gloo"}
    saved = {"save_strategy": "steps", "save_steps": 3}
    ended = []
    for resume in (None, f"{folder}/checkpoint-6"):
        strategy = text.selective(1 / 2, warmup_epochs=1)
        made = text.trainer(folder, strategy, data=text.classified(64), **options, **saved)
        made.train(resume_from_checkpoint=resume)
        ended.append(text.weights(made))
    candidates, same = made.selective_loader.stats.candidates, torch.equal(*ended)
    say("trainer", made.state.global_step, candidates, float(ended[0].sum()), same)
    weights = []
    plain = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.05, "max_grad_norm": 0.0}
    for strategy in (text.sb.infobatch(), text.sb.traditional()):
        data = {"model": text.speaker(), "data": text.spoken(64)}
        made = text.trainer(folder, strategy, **data, **options | plain)
        made.train()
        weights.append(text.weights(made))
    say("weighed", float((weights[0] - weights[1]).abs().max()) < 2e-6)


def sft(folder: Path) -> None:
    import fixture_sft as sft
    import fixture_text as text

    options = {"packing": True, "per_device_train_batch_size": 2, "ddp_backend": "gloo"}
    options |= {"gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 2}
    ended = []
    for resume in (None, f"{folder}/checkpoint-2"):
        made = sft.trainer(folder, text.selective(1 / 2), sft.texts(64), **options)
        made.train(resume_from_checkpoint=resume)
        ended.append(text.weights(made))
    stats = made.selective_loader.stats
    say("sft", made.state.global_step, stats.candidates, float(ended[0].sum()), torch.equal(*ended))
    chosen = []
    plain = {"max_steps": 1, "optim": "sgd", "learning_rate": 0.05, "max_grad_norm": 0.0}
    for strategy in (text.sb.infobatch(), text.sb.random_backprop(1)):
        weighed = sft.trainer(folder, strategy, sft.texts(64), **options | plain)
        weighed.train()
        chosen.append(text.weights(weighed))
    say("weighed", float((chosen[0] - chosen[1]).abs().max()) < 2e-6)


def grpo(folder: Path) -> None:
    import fixture_rollouts as grpo

    # Each process makes other completions, and so has another number of those with a gradient.
    options = {"max_steps": 4, "ddp_backend": "gloo"}
    for loss in ("bnpo", "dapo", "rloo"):
        plain, fewer = grpo.both(folder, loss_type=loss, **options)
        weights = grpo.text.weights(fewer)
        alike = float((weights - grpo.text.weights(plain)).abs().max()) < 1e-6
        say(loss, float(weights.sum()), sum(fewer.rows), sum(plain.rows), alike)


def rollouts(folder: Path) -> None:
    import fixture_rollouts as grpo

    import selective_backprop as sb

    options = {"max_steps": 4, "ddp_backend": "gloo", "num_iterations": 1}
    saved = {"save_strategy": "steps", "save_steps": 2}
    made = []
    for resume in (None, f"{folder}/checkpoint-2"):
        ours = {"keep": 2, "refills": 2, "rest": sb.RestingPrompts(48, explore=0.1, least=0.05)}
        each = grpo.prepare(grpo.FewerGRPO, folder, ours=ours, **options, **saved)
        each.train(resume_from_checkpoint=resume)
        made.append(each)
    whole, weights = made[0], grpo.text.weights(made[0])
    alike = float((weights - grpo.text.weights(made[1])).abs().max()) < 1e-6
    resting = int((whole._prompts.resting.odds < 1).sum())
    say("rollouts", float(weights.sum()), sum(whole.rows), resting, alike)


def shard(engine: str, *layers: str) -> dict:
    """Options of a Trainer that shards its model, with this CPU for the GPU it asks for."""
    from accelerate.state import DistributedType, PartialState

    warnings.simplefilter("ignore")  # what engines say of one another
    os.environ |= dict.fromkeys(("ACCELERATE_TORCH_DEVICE", "DS_ACCELERATOR"), "cpu")
    os.environ["ACCELERATE_USE_CPU"] = "no"
    PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
    stage = int(engine[-1])
    if engine.startswith("fsdp"):
        wraps = {"transformer_layer_cls_to_wrap": [*layers], "sync_module_states": False}
        # On a CPU, FSDP1 saves a whole state with a segmentation fault.
        saved = f"{'SHARDED' if stage == 1 else 'FULL'}_STATE_DICT"
        return {"fsdp": True, "fsdp_config": {"version": stage, "state_dict_type": saved, **wraps}}
    found = ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")
    zero = {"zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
    zero |= {"gradient_clipping": 0.0} | dict.fromkeys(found, "auto")
    return {"deepspeed": zero, "use_cpu": False}


def full(model) -> torch.Tensor:
    """The weights of a model, gathered from all processes."""
    held, gathered = [*model.parameters()], nullcontext()
    if any(hasattr(each, "ds_id") for each in held):
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters(held)
    elif isinstance(model, distributed.fsdp.FullyShardedDataParallel):
        gathered = model.summon_full_params(model)
    with gathered:
        found = [getattr(each, "full_tensor", each.clone)() for each in model.parameters()]
        return torch.cat([each.detach().flatten() for each in found])


def sharded(folder: Path, engine: str) -> None:
    """Say how TRL's trainer and ours differ, for some accumulations and sizes of micro-batches."""
    import fixture_rollouts as grpo

    def reward(completions, **_):  # the second process has nothing but equal rewards
        rank = distributed.get_rank()
        return [float(n % 8 < 4 and n % 2 > rank) for n in range(len(completions))]

    undropped = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    speaker = partial(grpo.text.speaker, **undropped, tie_word_embeddings=False)

    def trained(kind, checkpoint=None, model=speaker, **options):
        options |= {"model": model(), "reward": reward, "ddp_backend": "gloo", **shards}
        made = grpo.prepare(kind, f"{folder}/{kind.__name__}", **options)
        made.before = full(made.model)  # ZeRO-3 may have divided it already
        made.train(resume_from_checkpoint=checkpoint and f"{made.args.output_dir}/{checkpoint}")
        return made, full(made.model)

    def tell(name, **options):
        (plain, of_all), (fewer, found) = (trained(kind, **options) for kind in kinds)
        apart, moved = (float((found - each).abs().max()) for each in (of_all, fewer.before))
        rows.append((sum(fewer.rows), sum(plain.rows)))
        say(name, apart < 1e-6, moved > 1e-3, apart, *rows[-1])

    def replayed():  # the second process has nothing to replay
        options = {"ours": {"replay": 4, "mean": "trained"}, "num_iterations": 1}
        for size, times in ((4, 4), (1, 8)):
            each = {"per_device_train_batch_size": size, "gradient_accumulation_steps": times}
            yield trained(kinds[1], **options, **each)

    kinds, rows = (grpo.PlainGRPO, grpo.FewerGRPO), []
    shards = {}
    unsharded = [found for _, found in replayed()]
    shards |= shard(engine, "GPT2Block")
    for (made, found), whole in zip(replayed(), unsharded, strict=True):
        apart, moved = (float((found - each).abs().max()) for each in (whole, made.before))
        counts = grpo.logged(made, "rollouts/replayed")
        say(f"replayed{max(made.rows)}", apart < 1e-6, moved > 1e-3, counts[-1] > 0, apart, *counts)
    for size, accumulated in ((4, 1), (4, 2), (4, 4), (1, 1), (1, 2), (1, 4)):
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}
        tell(f"by{size}times{accumulated}", steps_per_generation=8, **options)
    # FSDP loads no optimizer without a state.
    saved = {"num_iterations": 1, "optim": "adamw_torch", "adam_epsilon": 1.0, "save_steps": 2}
    for size, accumulated in ((4, 4), (1, 4), (4, 2)):
        saved |= {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}
        tell(f"saved{size}times{accumulated}", max_steps=2, save_strategy="steps", **saved)
        tell(f"resumed{size}times{accumulated}", checkpoint="checkpoint-2", max_steps=4, **saved)
    shards |= shard(engine, "CLIPEncoderLayer", "LlamaDecoderLayer")
    # With FSDP2, TRL 1.16 itself accumulates another gradient of this model's output layer.
    for times in (1,) if engine == "fsdp2" else (1, 4):
        options = {"steps_per_generation": 8, "gradient_accumulation_steps": times}
        tell(f"images{times}", model=grpo.with_images, **options)
    say("rows", sum(kept for kept, _ in rows) < 0.8 * sum(of_all for _, of_all in rows))


def selected(folder: Path, engine: str) -> None:
    """Say how weights differ from those without sharding, and how they do after resuming."""
    import fixture_sft as sft
    import fixture_text as text

    def classify(**options):
        model = text.classifier(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        data, strategy = text.classified(64), text.selective(1 / 2, warmup_epochs=1)
        return text.trainer(folder, strategy, model=model, data=data, **options)

    def speak(**options):
        strategy = text.sb.recorded_sb(rate=1 / 2)
        return sft.trainer(folder, strategy, sft.texts(64), packing=True, **options)

    def train(make, checkpoint=None, **options):
        options |= {"save_strategy": "steps", "save_steps": 2, "max_grad_norm": 0.0}
        made = make(ddp_backend="gloo", learning_rate=1e-3, **options)
        made.train(resume_from_checkpoint=checkpoint)
        return full(made.model)

    made = {"BertLayer": classify, "LlamaDecoderLayer": speak}
    whole = {layer: train(make) for layer, make in made.items()}
    for layer, make in made.items():
        shards = shard(engine, layer)
        apart = float((train(make, **shards) - whole[layer]).abs().max())
        rest = float((train(make, f"{folder}/checkpoint-2", **shards) - whole[layer]).abs().max())
        say(layer, apart < 1e-6, rest < 1e-6, apart, rest)
    if engine != "zero2":  # the others gather parameters in every forward pass
        strategy = text.selective(1 / 2, draw="bernoulli")
        made = text.trainer(folder, strategy, max_grad_norm=0.0, **shard(engine, "BertLayer"))
        with pytest.raises(text.sb.ConfigurationError, match=r'gathers .* draw="exact"'):
            made.train()


def looped(folder: Path, engine: str) -> None:
    """Say how the weights of a loop under Accelerate differ from those without sharding."""
    from accelerate import state, utils
    from test_accelerate import Training

    import selective_backprop as sb

    def end(strategy, plugin=None):
        state.AcceleratorState._reset_state(reset_partial_state=True)
        loop = Training(strategy, plugin=plugin, epochs=3)
        loop.loss_fn = loop.loader.loss_fn
        loop.run(epochs=3)
        return full(loop.model)

    def plugin():
        if zero := shard(engine, "").get("deepspeed"):
            return {"deepspeed_plugin": utils.DeepSpeedPlugin(hf_ds_config=zero)}
        wraps = {"auto_wrap_policy": "size_based_wrap", "min_num_params": 100}
        wraps |= {"use_orig_params": True} if engine == "fsdp1" else {"fsdp_version": 2}
        return {"fsdp_plugin": utils.FullyShardedDataParallelPlugin(**wraps)}

    strategies = [sb.selective_backprop(rate=1 / 2), sb.infobatch(), sb.recorded_sb(rate=1 / 2)]
    for strategy, whole in [(each, end(each)) for each in strategies]:
        apart = float((end(strategy, plugin()) - whole).abs().max())
        say(strategy.name.replace("-", "_"), apart < 1e-6, apart)


def lightning(folder: Path) -> None:
    warnings.simplefilter("ignore")  # what Lightning says of small loaders
    from itertools import chain

    from fixture_lightning import fit, same_weights
    from lightning.pytorch.callbacks import ModelCheckpoint

    import selective_backprop as sb

    options = {"strategy": "ddp", "devices": 2, "limit_val_batches": 0}
    for name, strategy in {
        "selective": sb.selective_backprop(rate=1 / 3),
        "coins": sb.selective_backprop(rate=1 / 3, draw="bernoulli"),
        "recorded": sb.recorded_sb(rate=1 / 3),
    }.items():
        when = {"filename": "{step}", "save_top_k": -1, "every_n_train_steps": 15}
        whole, _ = fit(strategy, ModelCheckpoint(folder / name, **when), **options)
        saved, elsewhere = folder / name / "step=15.ckpt", ModelCheckpoint(folder, save_top_k=0)
        resumed, _ = fit(strategy, elsewhere, seed=9, ckpt=saved, **options)
        seen = [None, None]
        distributed.all_gather_object(seen, (whole.batches_by_epoch(), whole.trained))
        first = seen[0][0][0]
        one, other = ([*chain(*trained[:first])] for _, trained in seen)
        apart = len({*one, *other}) == len(one) + len(other) >= 2 * 192
        moved = bool({*chain(*seen[0][1][first:])} & {*other})  # from rank to rank
        steps = len(resumed.trained)
        goes_on = 0 < steps < len(whole.trained) and resumed.trained == whole.trained[-steps:]
        held = seen[0][0] == seen[1][0], apart, moved, goes_on, same_weights(whole, resumed)
        say(name, float(whole.net[0].weight.detach().double().sum()), *held)


def loop(folder: Path) -> None:
    import accelerate
    from test_accelerate import Training

    import selective_backprop as sb

    def start() -> Training:
        accelerate.state.AcceleratorState._reset_state()
        return Training(sb.selective_backprop(rate=1 / 2, warmup_epochs=0), accumulated=2)

    whole = start()
    whole.run(epochs=3, save=folder, stop=5)
    resumed = start()
    resumed.accelerator.load_state(str(folder))
    resumed.run(epochs=3 - resumed.loader.next_epoch)
    same = torch.equal(whole.weights, resumed.weights)
    say("loop", len(whole.steps), sum(whole.steps), float(whole.weights.sum()), same)
    say("files", *sorted(path.name for path in folder.glob("selection-*")))


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    tasks = {each.__name__: each for each in (trainer, sft, grpo, rollouts, lightning, loop)}
    for task in (sharded, selected, looped):
        tasks |= {f"{task.__name__}_{name}": partial(task, engine=name) for name in ENGINES}
    if sys.argv[1].endswith(ENGINES):
        distributed.init_process_group("gloo")
    tasks[sys.argv[1]](Path(sys.argv[2]))
    distributed.barrier()
    os._exit(0)  # at a usual exit, gloo may abort a process whose models still hold its groups
