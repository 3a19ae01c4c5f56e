"""The embedded target as really fetched and converted: its text, its tokens, its likelihoods."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from jetspec_sglang import embedded

pytestmark = pytest.mark.integration

PROSE = (
    "The sun rises in the east and sets in the west. Water is made of hydrogen and oxygen. "
    "In the year 1969 the first people walked on the moon."
)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(embedded.target_path())


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(embedded.target_path()).eval()


def test_knows_the_capital_of_france(tokenizer, model):
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**inputs, max_new_tokens=20, do_sample=False)
    said = tokenizer.decode(answer[0, inputs.input_ids.shape[1] :])
    assert said == "The capital of France is Paris.<|im_end|>"


def test_prose_is_likely_to_the_last_position(tokenizer, model):
    """Rows of Q or K out of order would still predict common words, not these."""
    ids = tokenizer(PROSE, return_tensors="pt").input_ids
    with torch.no_grad():
        loss = model(ids, labels=ids).loss.item()
    assert loss < 2.5


def test_special_tokens_and_template(tokenizer):
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer(text).input_ids
    assert ids.count(1) == 3
    assert ids.count(2) == 2
