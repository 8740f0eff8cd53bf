"""Strategies: each combines a scorer, a selector and a schedule.

strategy             scorer                        selector             when it trains on everything
traditional          -                             Everything()         -
random_backprop      -                             Uniform(rate)        -
random_scored        Forward()                     Uniform(rate)        -
top_k, low_k         Forward()                     Top, Bottom(rate)    -
selective_backprop   Forward()                     Percentile(beta)     first epoch
stale_sb             Stale(Forward(), n)           Percentile(beta)     first epoch
predicted_sb         Predicted(Forward(), ...)     Percentile(beta)     first epoch
recorded_sb          Recorded()                    Percentile(beta)     first epoch
proxy_sb             Proxy(small model)            Percentile(beta)     first epoch
diet_sb              Forward(), of a subset        Percentile(beta)     first epoch
kath18               Forward(error norm)           Proportional(B / b)  while the gate is shut
infobatch            Recorded()                    BelowMean(r)         last eighth
kakurenbo            Recorded(rescore=Forward())   Hide(share)          first epoch
easy_skip            Recorded(max_age=4)           Confident(floor)     first quarter, last sixth
auto                 see _auto                     Confident(floor)     first epoch
rho_loss             Excess(reference, Forward())  Top(rate)            -
tail_sft             Excess(None, Recorded(4))     Top(rate)            first epoch
"""

from selective_backprop.strategies._strategy import Strategy

__all__ = ["Strategy"]
