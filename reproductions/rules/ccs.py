"""CCS, coverage-centric coreset selection: drop the hardest, then take as many of each stratum."""

import torch
from torch import Tensor

import selective_backprop as sb


def ccs(
    scores: sb.ExampleScores,
    keep: float = 0.1,
    *,
    cutoff: float = 0.3,
    strata: int = 50,
    seed: int = 0,
) -> sb.Strategy:
    """Train on a subset that covers all strata of difficulty but the hardest examples.

    The share `cutoff` with the highest scores is dropped. The range of the other scores is cut into
    `strata` equally wide ones. From the smallest stratum up, each gives all it has, or an equal
    part of what is still to be kept. The cost is that of the scores, such as `sb.el2n_scores`.

    Source:
        Zheng et al. 2023, "Coverage-centric Coreset Selection for High Pruning Rates", ICLR 2023,
        arXiv:2210.15809, abstract: CCS "jointly considers overall data coverage upon a distribution
        as well as the importance of each example". The strata, and the order in which they give,
        are those of the authors' code; the defaults are its README's for a pruning rate of 90 %:
        "--coreset-mode stratified", "--coreset-ratio 0.1 --mis-ratio 0.3". Its scores are AUM, of
        which the lowest are the hardest: pass them with the other sign.
    """
    generator, difficulty = torch.Generator().manual_seed(seed), scores.scores.double()
    examples = len(difficulty)
    easier = difficulty.argsort(stable=True)[: examples - int(cutoff * examples)]
    low, high = difficulty[easier[0]], difficulty[easier[-1]]
    places = ((difficulty[easier] - low) / (high - low).clamp(min=1e-300) * strata).long()
    members = [easier[places.clamp(max=strata - 1) == each] for each in range(strata)]
    kept, wanted = list[Tensor](), int(keep * examples)
    for done, stratum in enumerate(sorted(members, key=len)):
        budget = min(len(stratum), wanted // (strata - done))
        kept.append(stratum[torch.randperm(len(stratum), generator=generator)[:budget]])
        wanted -= budget
    source = f"CCS of {scores.source}, {cutoff:.0%} cut off"
    subset = sb.Subset(
        torch.cat(kept), examples, scores=scores.scores, source=source, cost=scores.cost
    )
    return sb.pruned(subset)
