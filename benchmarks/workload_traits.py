"""Look at the training data of each workload of the study behind `auto`, as `advise` does.

    python benchmarks/workload_traits.py --root data --out records/bench/workload-traits.json

What a strategy was worth on data of such traits is what `advise` forecasts by.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from recording import write_record

import selective_backprop as sb
from reproductions.auto_study.protocol import STAGES
from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.runner.run_store import load_data


def main() -> int:
    """Look at every workload's data, and write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="folder of the data sets' files")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each look")
    parser.add_argument("--out", type=Path, required=True, help="the JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for stage in STAGES.values():
        for each in stage.workloads:
            data = each.composition(load_data(each.recipe.data, options.root, each.limit))
            loader = make_loader(data, batch_size=128, seed=0)
            found[each.title] = asdict(sb.guide.data_traits(loader, seconds=options.seconds))
            print(f"{each.title}: {found[each.title]['seconds']:.1f} s")
    write_record(
        options.out,
        workloads=found,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
