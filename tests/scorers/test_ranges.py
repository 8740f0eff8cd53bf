"""Options out of range are refused by their name and what was found."""

import math

import pytest
from unhooked import unhooked

import selective_backprop as sb

FORWARD = sb.scorers.Forward()
WRONG = {
    sb.scorers.Average: {
        "decay": [-0.1, 1.0, math.nan],
        "depth": [0, -1, 1.5, math.nan, math.inf],
    },
    sb.experimental.Check: {
        "batches": [0, 1.5],
        "least": [-0.1, math.nan],
    },
    sb.scorers.Crossing: {
        "rate": [0, -0.5, 1.5, math.nan],
        "points": [7, 0, 8.5, math.nan],
        "depth": [1, 2.5, math.nan],
    },
    sb.scorers.GaussianProcess: {
        "points": [7, 0, -1, 10.5, math.nan, math.inf],
        "depth": [1, 0, 2.5, math.nan],
    },
    sb.experimental.Int8: {"recalibrate_every": [1.5]},
    sb.experimental.Pipelined: {
        "every": [0, 1.5],
        "ahead": [0],
        "check": [8],
    },
    sb.scorers.Predicted: {"epochs": [0, 1, -1, 1.5, math.nan, math.inf]},
    sb.scorers.Recorded: {
        "max_age": [0, -1, 1.5, math.nan, math.inf],
        "give_up": [0.0, 1.0, -0.1, math.nan],
        "highest_of": [0, 1.5, -1],
    },
    sb.scorers.Stale: {"epochs": [0, -1, 1.5, math.nan, math.inf]},
}
NEEDED = {
    **{
        kind: {"scorer": FORWARD}
        for kind in (sb.experimental.Int8, sb.scorers.Predicted, sb.scorers.Stale)
    },
    sb.experimental.Pipelined: {"scorer": FORWARD, "every": 2},
    sb.scorers.Recorded: {"highest_of": 2},
}


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        pytest.param(kind, option, value, id=f"{kind.__name__} {option} {value!r}")
        for kind, options in WRONG.items()
        for option, values in options.items()
        for value in values
    ],
)
def test_a_value_out_of_range_is_refused_by_name(kind, option, value):
    with unhooked(), pytest.raises(sb.ConfigurationError) as refused:
        kind(**NEEDED.get(kind, {}) | {option: value})
    assert f"{option}={value!r}" in str(refused.value)
