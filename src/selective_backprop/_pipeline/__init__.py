"""One epoch's way from indices to training batches.

Indices are drawn (`index_sampler`), loaded and paired (`candidate_loader`), scored and selected
(`stages`), and kept rows wait for a full batch (`selection_buffer`). Where the consumer stands
travels with each batch (`cursor`). Knows scorers and selectors by their interfaces, and nothing of
named strategies. Read `stages.py` first.
"""
