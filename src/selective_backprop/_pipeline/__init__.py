"""The stages of an epoch, from indices to training batches.

`index_sampler` draws indices, `candidate_loader` loads batches and pairs them with their plans,
`stages` scores and selects, and `selection_buffer` keeps selected rows until a batch is full. Each
batch carries the position of its consumer, the training loop (`resume_point`). This package uses
only the interfaces of scorers and selectors, and no named strategy. Read `stages.py` first.
"""
