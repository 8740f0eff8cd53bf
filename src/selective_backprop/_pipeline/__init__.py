"""The stages of an epoch, from indices to training batches.

`index_sampler` draws indices, `candidate_loader` loads batches and pairs them with their plans,
`stages` scores and selects, and `selection_buffer` keeps selected rows until a batch is full. Each
batch carries the consumer's position (`resume_point`). This room knows scorers and selectors by
their interfaces and knows no named strategy. Read `stages.py` first.
"""
