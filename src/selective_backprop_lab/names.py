"""Names as they are typed: with hyphens, underscores or neither, in any case, or misspelt."""

from collections.abc import Iterable
from difflib import get_close_matches

import selective_backprop as sb


def find_name(kind: str, typed: str, names: Iterable[str], *, more: str = "") -> str:
    """Return the name that was meant: `Selective_Backprop` is `selective-backprop`.

    Args:
        kind: what the names are of, such as "strategy".
        typed: what was typed.
        names: the names that there are.
        more: what the error says after them, such as ", and all".

    Raises:
        ConfigurationError: if it is none of them; the error says which are nearly alike.
    """
    names = [*names]
    if typed in names:  # as nearly always, and many thousand times where records are read
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
