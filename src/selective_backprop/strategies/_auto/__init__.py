"""The rule of `auto`, which needs no rate. It is this project's own.

1. From an example's last two losses, the higher counts: one lucky guess is not learned yet.
2. Its *error* is `1 - exp(-loss)`, the probability that the model gives to all wrong classes. An
   epoch trains on the example with probability `2 * error`, but at least 0.1.
3. What was skipped for ten epochs is trained on again.
4. Errors below 1/2 rise in a class with more than half of the examples, which is easily guessed.
5. They also rise with each pass. Once the average example was trained on nine times, all are 1/2,
   so that nothing is skipped any more.
6. An example is given up if hardly any example recovers from losses as high as its last two.
7. The first epoch estimates how many labels are wrong. If asked to (`trim`), the rule gives up as
   many examples with the highest last losses.

`rule.py` holds all but the estimate of `wrong_labels.py`. All of it needs plain cross-entropies:
`entropies.py` takes label smoothing and class weights out of losses, and refuses losses that are no
cross-entropies.
"""
