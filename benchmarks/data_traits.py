"""Hold what `data_traits` finds in data against what they were made up of.

    python benchmarks/data_traits.py --root data --out records/bench/data-traits.json

Data sets of the lab are made repetitive, skewed and mislabelled, and then looked at as `advise`
looks at them. Nothing is drawn but by fixed seeds.
"""

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from recording import write_record

import selective_backprop as sb
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.datasets import LabData, load
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.data.noise import NoiseKind

PLACES = 8000  # of skewed data
NEAR, SKEWED = {"copies": 1, "near_copies": 2}, {"skew": 1.5, "copies": 1, "places": PLACES}
NEIGHBOUR = {"noise_kind": NoiseKind.NEIGHBOUR}
FEW = ({}, NEAR, SKEWED, {"noise": 0.1}, {"noise": 0.2, **NEIGHBOUR})
MANY = (
    *({}, {"copies": 1}, NEAR, SKEWED, {"noise": 0.05}, {"noise": 0.05, **NEIGHBOUR}),
    *({"noise": 0.1}, {"noise": 0.1, **NEIGHBOUR}, {"noise": 0.2}, {"noise": 0.2, **NEIGHBOUR}),
    {**SKEWED, "noise": 0.1},
)
CASES = {"digits": MANY, "mnist": MANY, "fashion-mnist": FEW, "cifar10": FEW}


def measure(clean: LabData, settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return what one composition is made up of, and what is found."""
    composition = Composition(**settings)
    data = composition(clean)
    repeats = 0.0
    if composition.places is not None or composition.copies:
        rows = composition.rows(clean.train_labels, clean.class_names)
        repeats = 1 - len(rows.unique()) / len(rows)
    right = data.train_labels if data.train_clean_labels is None else data.train_clean_labels
    shares = right.bincount().double() / len(right)
    begun = time.process_time()
    found = sb.guide.data_traits(make_loader(data, batch_size=128, seed=0), seconds=seconds)
    return {
        "data": clean.name,
        "settings": settings,
        "examples": len(data.train_labels),
        "repeats": repeats,
        "effective_classes": float(torch.special.entr(shares).sum().exp()),
        "wrong": float(data.flipped.double().mean()),
        "cpu_seconds": time.process_time() - begun,
        "found": asdict(found),
    }


def main() -> int:
    """Measure every composition, and write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="folder of the data sets' files")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each look")
    parser.add_argument("--out", type=Path, required=True, help="the JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = []
    for name, compositions in CASES.items():
        clean = load(name, root=options.root)
        for settings in compositions:
            cases.append(measure(clean, settings, options.seconds))
            print(f"{name} {settings}: {cases[-1]['cpu_seconds']:.1f} CPU s")
    write_record(
        options.out,
        cases=cases,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
