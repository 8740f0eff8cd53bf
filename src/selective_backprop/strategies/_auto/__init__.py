"""The rule of `auto`, which needs no rate. It is this project's own: read `auto` in `rule.py`.

`wrong_labels.py` estimates the share of wrong labels in the first epoch. Both need plain
cross-entropies: `entropies.py` takes label smoothing and class weights out of losses, and refuses
losses that are no cross-entropies.
"""
