"""The stages of an epoch, from indices to training batches.

`stages` is the map; read it first. `index_sampler` draws indices, `candidate_loader` loads batches
and pairs them with their plans, and `selection_buffer` selects rows and keeps them until a batch is
full. Each stage builds itself from one `Setup` (`options`). Each batch carries the position of its
consumer, the training loop (`rows`).
"""
