"""Types and shapes are checked against what is really passed, an int being a float.

Import this before the package.
"""

from jaxtyping import install_import_hook

install_import_hook(
    "selective_backprop",
    "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",
)
