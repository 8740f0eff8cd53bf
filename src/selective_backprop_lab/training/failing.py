"""Trainings that fail by their losses: which one it was, and what to do at a command line."""

import selective_backprop as sb


def in_words(who: str, error: sb.LossError, advice: str) -> str:
    """Say what failed and why.

    Args:
        who: what was training.
        error: what it raised.
        advice: what to do where losses are not finite.
    """
    # What follows is about arguments of a loader, which no command has.
    found, _, _ = str(error).partition(" Mend the data")
    return f"{who}: {found} {advice}" if "finite" in found else f"{who}: {found}"
