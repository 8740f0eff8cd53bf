"""Find every class of a kind, so that a list in a test cannot forget one."""

import importlib
import inspect
import pkgutil

import selective_backprop as sb


def final_classes(kind: type) -> set[type]:
    """The package's own classes of a kind that no other class inherits from."""
    extras = (f"{sb.__name__}.lab", f"{sb.__name__}.integrations")  # with their own tests
    for module in pkgutil.walk_packages(sb.__path__, f"{sb.__name__}."):
        if not module.name.startswith(extras):
            importlib.import_module(module.name)
    found, waiting = set(), [kind]
    while waiting:
        parent = waiting.pop()
        below = [c for c in parent.__subclasses__() if c.__module__.startswith(sb.__name__)]
        waiting += below
        if not below:
            found.add(parent)
    return found - {kind}


def public_classes(kind: type) -> set[type]:
    """The classes of a kind that the package shows, but for the interface itself."""
    return {
        value
        for value in (vars(sb.scorers) | vars(sb.selectors)).values()
        if inspect.isclass(value) and issubclass(value, kind) and value is not kind
    }
