"""What this project's committed records say of the strategies' accuracy, and no more."""

LEVEL = "level with traditional training at equal cost, within the intervals"
SKIPPING = (
    "with a fifth of the labels wrong a third of a point lower in 8 passes of Fashion-MNIST, and "
    "half a point and more higher in 27 of MNIST"
)

KNOWN = {
    "traditional": "the control; half of it, with the learning rate decayed over the shorter "
    "run, is the rival to beat",
    "random-backprop": LEVEL,
    "random-scored": "level on MNIST, higher on Fashion-MNIST at equal cost: it shows what the "
    "scores cost",
    "selective-backprop": f"{LEVEL}; three points higher with a fifth of the labels wrong",
    "stale-sb": LEVEL,
    "predicted-sb": LEVEL,
    "recorded-sb": f"{LEVEL}, and nearest to lower on Fashion-MNIST; with a fifth of the labels "
    "wrong not better than level",
    "easy-skip": f"{LEVEL}; {SKIPPING}",
    "infobatch": f"{LEVEL}; {SKIPPING}",
    "auto": f"{LEVEL}; with a fifth of the labels wrong lower, by 0.5 and 0.9 points in 9 and 27 "
    "passes of MNIST, on which it was developed",
}
"""What came of each, by error: MNIST and Fashion-MNIST, three seeds (`docs/measured.md`), and the
development of `auto` (`docs/auto.md`)."""

OF_CHEAP_SCORES = "no run on record; it selects others as far as its scores disagree"

EVIDENCE = (
    "Where labels were right, no method on record ended lower than traditional training of the "
    "same cost beyond the interval, on MNIST or Fashion-MNIST; what is saved per epoch is no "
    "accuracy gained."
)
