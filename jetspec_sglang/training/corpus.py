"""The prompts of recorded answers with the answers that a data set's authors wrote for them.

Contract: pure. The paper calls them corpus answers. Training on them shows the value of answers by
the target (`jetspec bench ablations`). Do not train a good head this way.
"""

from __future__ import annotations

from collections.abc import Mapping

from jetspec_sglang.training.prompts import ChatTemplate, prompt_hash
from jetspec_sglang.training.responses import Responses, pack


def with_corpus_answers(
    responses: Responses, template: ChatTemplate, answers: Mapping[str, str]
) -> Responses:
    """The same prompts in the same order; each answer ends with the id that ends a turn.

    `answers`: text by user message, matched without regard to blanks and case. ValueError if they
    do not contain a prompt of `responses`.
    """
    by_prompt = {
        _key(template, template.render(message)): text for message, text in answers.items()
    }
    sequences = []
    for index in range(len(responses)):
        prompt = responses.prompt(index).tolist()
        key = _key(template, prompt)
        if key not in by_prompt:
            raise ValueError(
                f"sequence {index} ({responses.source[index]}) answers a prompt that the sets "
                "with corpus answers do not hold"
            )
        text = template.tokenizer.encode(by_prompt[key], add_special_tokens=False)
        sequences.append([*prompt, *text, template.tokenizer.eos_token_id])
    return pack(sequences, responses.response_start, responses.source)


def _key(template: ChatTemplate, prompt: list[int]) -> str:
    return prompt_hash(template.tokenizer.decode(prompt))
