"""Two ranks train, are interrupted and go on; started by torchrun, each writes what it saw."""

import json
import sys
from pathlib import Path

import torch
from fixture_lightning import fit, passes_of, same_weights
from lightning.pytorch.callbacks import ModelCheckpoint

import selective_backprop as sb

STRATEGIES = {
    "selective": sb.selective_backprop(rate=1 / 3),
    "coins": sb.selective_backprop(rate=1 / 3, draw="bernoulli"),
    "recorded": sb.recorded_sb(rate=1 / 3),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, seen = Path(sys.argv[1]), {}
    options = {"strategy": "ddp", "devices": 2, "limit_val_batches": 0}
    for name, selection in STRATEGIES.items():
        keeping = ModelCheckpoint(
            folder / name, filename="{step}", save_top_k=-1, every_n_train_steps=15
        )
        whole, trainer = fit(selection, keeping, **options)
        elsewhere = ModelCheckpoint(folder / f"{name}-again", save_top_k=0)
        saved = folder / name / "step=15.ckpt"
        resumed, _ = fit(selection, elsewhere, seed=9, ckpt=saved, **options)
        seen[name] = {
            "epochs": whole.batches_by_epoch(),
            "trained": whole.trained,
            "resumed": resumed.trained,
            "same": same_weights(whole, resumed),
            "weight": float(whole.net[0].weight.detach().double().sum()),
            "candidates": passes_of(trainer).loader.stats.candidates,
        }
        rank = trainer.global_rank
    (folder / f"rank{rank}.json").write_text(json.dumps(seen))
