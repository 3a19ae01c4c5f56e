"""Refuses requests that would stop the server's scheduler or get a wrong answer.

SGLang 0.5.23 does not check some values that later fail in the model's forward pass, the sampler or
the logits processor. Such a failure ends all requests. The values are an empty prompt, token ids
outside the vocabulary, and numbers too large for a tensor. SGLang also ignores images for a text
model. The check runs in the process that tokenises, where a ValueError becomes HTTP 400.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

LARGEST_TOP_K = 2**31 - 1
"""SGLang's sampler keeps top_k in int32."""
LARGEST_BIAS = 1e9
SMALLEST_REPETITION_PENALTY = 0.01
"""Within these limits, logits stay finite at SGLang's lowest temperature (1e-6). With NaN, sampling
fails."""


def validate(original: Callable[..., None], manager: Any, obj: Any, input_ids: Any) -> None:
    """AROUND hook on the tokenizer manager's validation of one request."""
    vocab_size = manager.model_config.vocab_size
    if input_ids is not None and getattr(obj, "input_embeds", None) is None:
        check_prompt(input_ids, vocab_size)
    original(manager, obj, input_ids)
    if not manager.model_config.is_multimodal:
        check_media(obj)
    check_logprobs(obj, vocab_size)
    if isinstance(parameters := getattr(obj, "sampling_params", None), dict):
        check_sampling(parameters, vocab_size)


def check_prompt(input_ids: Any, vocab_size: int) -> None:
    """ValueError unless there is at least one id and all are from 0 to vocab_size - 1."""
    if len(input_ids) == 0:
        raise ValueError("the prompt has no tokens: at least 1 is needed")
    _check_ids("input_ids", input_ids, vocab_size)


def check_media(obj: Any) -> None:
    """ValueError for images, videos or sound."""
    for field in ("image_data", "video_data", "audio_data"):
        if getattr(obj, field, None):
            raise ValueError(f"{field} is given: this server's model reads text only")


def check_logprobs(obj: Any, vocab_size: int) -> None:
    """ValueError for a count or a start of log-probabilities that does not exist."""
    _check("top_logprobs_num", getattr(obj, "top_logprobs_num", None), 0, vocab_size)
    # -1 stands for the end of the prompt; a start behind it is refused by SGLang itself.
    _check("logprob_start_len", getattr(obj, "logprob_start_len", None), -1)


def check_sampling(parameters: dict[str, Any], vocab_size: int) -> None:
    """ValueError for numbers that SGLang's own check of `sampling_params` lets pass.

    What has a wrong type is left to SGLang, which refuses it.
    """
    _check("n", parameters.get("n"), 1)
    check_stops(parameters)
    _check("top_k", parameters.get("top_k"), -1, LARGEST_TOP_K)
    if isinstance(stops := parameters.get("stop_token_ids"), list):
        _check_ids("stop_token_ids", stops, vocab_size)
    biases = parameters.get("logit_bias")
    for key, bias in biases.items() if isinstance(biases, dict) else ():
        if not str(key).isascii() or not str(key).isdigit() or int(key) >= vocab_size:
            raise ValueError(f"logit_bias holds {key!r}: allowed are ids 0 to {vocab_size - 1}")
        _check(f"logit_bias.{key}", bias, -LARGEST_BIAS, LARGEST_BIAS)
    penalty = parameters.get("repetition_penalty")
    _check("repetition_penalty", penalty, SMALLEST_REPETITION_PENALTY, 2)


def check_stops(parameters: dict[str, Any]) -> None:
    """ValueError for an empty stop string, or for an invalid pattern."""
    for field in ("stop", "stop_regex"):
        given = parameters.get(field)
        for stop in [given] if isinstance(given, str) else given or ():
            if stop == "":
                raise ValueError(f"{field} holds an empty string: at least 1 character is needed")
            if field == "stop_regex" and isinstance(stop, str):
                try:
                    re.compile(stop)
                except re.error as error:
                    raise ValueError(f"stop_regex = {stop!r}: {error}") from None


def _check_ids(field: str, ids: Iterable[Any], vocab_size: int) -> None:
    numbers = [value for value in ids if isinstance(value, int)]
    for extreme in (min(numbers, default=0), max(numbers, default=0)):
        if not 0 <= extreme < vocab_size:
            raise ValueError(f"{field} holds {extreme}: allowed are 0 to {vocab_size - 1}")


def _check(field: str, value: Any, least: float, largest: float = math.inf) -> None:
    if isinstance(value, int | float) and not least <= value <= largest:
        allowed = f"{least} to {largest}" if largest < math.inf else f"{least} or more"
        raise ValueError(f"{field} = {value}: allowed are {allowed}")
