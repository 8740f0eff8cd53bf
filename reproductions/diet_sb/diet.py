"""The tables and figures of the Diet-SB report, each with what is known of it."""

from reproductions.diet_sb import lineup as diet_lineup
from reproductions.diet_sb import overlap as diet_overlap
from reproductions.diet_sb import training as diet_training
from reproductions.jiang2019.items import Item, Source

_OURS = (
    "Its text is not at hand, so its numbers are not repeated, and how everything is set up is "
    "ours: net, data, lengths, shares, and what a method does with a share."
)

DIET = (
    Item(
        "diet-runtime",
        "How long seven methods take",
        Source.DIET_SB,
        ("Lists the runtime of seven methods.", _OURS, "Which seven is ours as well."),
        diet_training.present_runtime,
        diet_lineup.seven,
    ),
    Item(
        "diet-accuracy",
        "Accuracy where much is pruned",
        Source.DIET_SB,
        ("Compares random, SB, EL2N and Diet-SB where 25 to 75 % are pruned.", _OURS),
        diet_training.present_accuracy,
        diet_lineup.accuracy,
    ),
    Item(
        "diet-nets",
        "EL2N of two nets",
        Source.DIET_SB,
        (
            "Shows how the examples of lowest EL2N overlap between GoogLeNet and ResNet-18; on a "
            "small scale, narrow siblings of theirs.",
            _OURS,
        ),
        diet_overlap.present_nets,
        diet_lineup.nets,
    ),
    Item(
        "diet-overlap",
        "SB's least selected examples, and those of lowest EL2N",
        Source.DIET_SB,
        ("Shows how SB's least selected examples overlap with those of lowest EL2N.", _OURS),
        diet_overlap.present_selections,
        diet_lineup.chosen,
    ),
    Item(
        "diet-images",
        "Twenty images that both would skip",
        Source.DIET_SB,
        ("Shows the twenty images of lowest EL2N and of lowest combined rank.", _OURS),
        diet_overlap.present_images,
        diet_lineup.chosen,
    ),
    Item(
        "diet-classes",
        "Which classes SB and EL2N skip",
        Source.DIET_SB,
        ("Shows which classes SB and EL2N skip most.", _OURS),
        diet_overlap.present_classes,
        diet_lineup.chosen,
    ),
)
