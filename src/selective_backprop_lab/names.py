"""Understand typed names: with hyphens, underscores or neither, and in any case."""

from collections.abc import Iterable
from difflib import get_close_matches

import selective_backprop as sb


def find_name(kind: str, typed: str, names: Iterable[str], *, more: str = "") -> str:
    """Return the name that was meant: `Selective_Backprop` is `selective-backprop`.

    An error says what `kind` of thing is not known, and `more` after the known names.
    """
    names = [*names]
    if typed in names:  # the usual case, and fast, since reading records calls this often
        return typed
    known = {_bare(name): name for name in names}
    if _bare(typed) in known:
        return known[_bare(typed)]
    near = [known[each] for each in get_close_matches(_bare(typed), known)]
    meant = f". Did you mean {' or '.join(near)}? There" if near else "; there"
    raise sb.ConfigurationError(
        f"there is no {kind} {typed!r}{meant} are {', '.join(known.values())}{more}"
    )


def _bare(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")
