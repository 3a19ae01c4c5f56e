"""Choose the reduced draft vocabulary: the ids that the target writes most often."""

from __future__ import annotations

import numpy as np

from jetspec_sglang.training.responses import Responses


def choose_draft_vocab(responses: Responses, vocab_size: int, size: int) -> np.ndarray:
    """`size` ids, int64 ascending: most frequent in the answers first, then the lowest ids.

    Low ids come next because a BPE vocabulary is ordered by how early a piece was merged, which is
    how common it is. ValueError when `size` is not 1 to vocab_size.
    """
    if not 1 <= size <= vocab_size:
        raise ValueError(f"draft_vocab_size = {size}: must be 1 to {vocab_size}")
    counts = responses.response_counts(vocab_size)
    order = np.lexsort((np.arange(vocab_size), -counts))
    return np.sort(order[:size]).astype(np.int64)
