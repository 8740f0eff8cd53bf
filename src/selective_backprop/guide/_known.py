"""What this project's committed records say about the strategies' accuracy, and no more."""

LEVEL = "level with traditional training at equal cost, within the intervals"
SKIPPING = "with a fifth of the labels wrong a third of a point lower in 8 passes of Fashion-MNIST"
REPETITIVE = "the training in 2 passes of skewed and repetitive MNIST"

KNOWN = {
    "traditional": "the control; half of it, with the learning rate decayed over the shorter "
    "run, is the rival to beat",
    "random-backprop": LEVEL,
    "random-scored": "level on MNIST, higher on Fashion-MNIST at equal cost: it shows what the "
    "scores cost",
    "selective-backprop": f"{LEVEL}, on MNIST, and on Fashion-MNIST but for the shortest runs; "
    "higher on parts of CIFAR; with a fifth of the labels wrong three points higher on "
    "Fashion-MNIST",
    "stale-sb": f"{LEVEL}, on MNIST and Fashion-MNIST; higher on parts of CIFAR",
    "predicted-sb": LEVEL,
    "recorded-sb": f"{LEVEL}, on MNIST and Fashion-MNIST; worth 1.3 to 2.0 times {REPETITIVE}; "
    "with a fifth of the labels wrong two to five points higher on MNIST",
    "easy-skip": f"{LEVEL}; {SKIPPING}",
    "infobatch": f"{LEVEL}; {SKIPPING}",
    "auto": f"level on MNIST, and worth 1.2 to 2.6 times {REPETITIVE}; with a fifth of the labels "
    "wrong less than half of traditional training's error in 16 passes of MNIST; 0.2 points "
    "higher in 16 passes of near-copies; all on data on which it was developed",
}
"""Each strategy's result by error: MNIST and Fashion-MNIST (`docs/measured.md`), parts of CIFAR
(`docs/redone.md`), and the study of `auto` (`docs/auto.md`); three to five seeds."""

OF_CHEAP_SCORES = "no run on record; it selects others as far as its scores disagree"

EVIDENCE = (
    "On balanced data with right labels, no method on record ended lower than traditional training "
    "of the same cost beyond its interval; what is saved per epoch is little accuracy gained, or "
    "none."
)
