"""Types and shapes of what ranks do are checked in their processes too.

Their fork server imports this before the package. The rest of it is checked in other tests.
"""

from jaxtyping import install_import_hook

MODULES = ["accord", "exchange", "joint_history", "journal", "memory", "ranks", "turns"]

install_import_hook(
    [f"selective_backprop._{module}" for module in MODULES],
    "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",
)
