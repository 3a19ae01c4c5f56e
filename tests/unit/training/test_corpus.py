"""Corpus answers take the place of the target's, prompt by prompt."""

import numpy as np
import pytest

from jetspec_sglang.training.corpus import with_corpus_answers
from jetspec_sglang.training.prompts import ChatTemplate
from jetspec_sglang.training.responses import pack


class Words:
    """A tokenizer whose ids are lengths of words; the turn ends with 99."""

    chat_template = "yes"
    eos_token_id = 99

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return f"ask {messages[0]['content']} answer"

    def encode(self, text, add_special_tokens=False):
        return [len(word) for word in text.split()]

    def decode(self, ids):
        return "  ".join(map(str, ids))


@pytest.fixture
def template():
    return ChatTemplate(Words(), before=(3,), stops=(99,))


def test_same_prompts_in_the_same_order_with_other_answers(template):
    recorded = pack([[3, 2, 6, 50, 51], [3, 1, 6, 52]], [3, 3], ["a", "b"])
    made = with_corpus_answers(recorded, template, {"x": "one three", "xx": "four"})
    assert [made.prompt(i).tolist() for i in range(2)] == [[3, 2, 6], [3, 1, 6]]
    assert made.sequence(0).tolist() == [3, 2, 6, 4, 99]
    assert made.sequence(1).tolist() == [3, 1, 6, 3, 5, 99]
    assert np.array_equal(made.source, recorded.source)


def test_a_prompt_that_no_set_holds_is_named(template):
    recorded = pack([[3, 7, 6, 50]], [3], ["other"])
    with pytest.raises(ValueError, match=r"sequence 0 \(other\)"):
        with_corpus_answers(recorded, template, {"x": "one"})
