"""Refuses requests that would end the server's scheduler instead of the request.

SGLang 0.5.23 checks a prompt's length only from above and its token ids not at all: an empty
prompt or an id outside the vocabulary fails inside the model's forward pass, which no request
survives. The check runs in the process that tokenises, where a ValueError becomes HTTP 400.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def validate(original: Callable[..., None], manager: Any, obj: Any, input_ids: Any) -> None:
    """AROUND hook on the tokenizer manager's validation of one request."""
    if input_ids is not None and getattr(obj, "input_embeds", None) is None:
        check_prompt(input_ids, manager.model_config.vocab_size)
    original(manager, obj, input_ids)


def check_prompt(input_ids: Any, vocab_size: int) -> None:
    """ValueError unless there is at least one id and all are from 0 to vocab_size - 1."""
    if len(input_ids) == 0:
        raise ValueError("the prompt has no tokens: at least 1 is needed")
    for extreme in (min(input_ids), max(input_ids)):
        if not 0 <= extreme < vocab_size:
            raise ValueError(f"input_ids holds {extreme}: allowed are 0 to {vocab_size - 1}")
