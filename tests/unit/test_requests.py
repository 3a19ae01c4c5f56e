"""A prompt that would end the scheduler is refused before it gets there."""

from types import SimpleNamespace

import pytest

from jetspec_sglang.requests import check_prompt, validate

MANAGER = SimpleNamespace(model_config=SimpleNamespace(vocab_size=100))


@pytest.mark.parametrize("ids", [[0], [99], [5, 0, 99]])
def test_good_prompts_reach_sglangs_own_checks(ids):
    seen = []
    validate(lambda *given: seen.append(given), MANAGER, SimpleNamespace(), ids)
    assert [given[2] for given in seen] == [ids]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([], ["no tokens", "at least 1"]),
        ([100], ["input_ids", "100", "0 to 99"]),
        ([3, 10**9, 4], ["input_ids", "1000000000", "0 to 99"]),
        ([-1, 5], ["input_ids", "-1", "0 to 99"]),
    ],
)
def test_bad_prompts_are_refused_with_what_is_allowed(ids, words):
    with pytest.raises(ValueError, match=r"input_ids|no tokens") as refusal:
        check_prompt(ids, 100)
    for word in words:
        assert word in str(refusal.value)


def test_prompts_given_as_embeddings_are_not_judged():
    seen = []
    request = SimpleNamespace(input_embeds=[[0.5]])
    validate(lambda *given: seen.append(given), MANAGER, request, [])
    assert len(seen) == 1
