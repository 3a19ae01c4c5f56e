"""A prompt that would end the scheduler is refused before it gets there."""

from types import SimpleNamespace

import pytest

from jetspec_sglang.hooks.requests import check_logprobs, check_prompt, check_sampling, validate

MANAGER = SimpleNamespace(model_config=SimpleNamespace(vocab_size=100, is_multimodal=False))


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


@pytest.mark.parametrize(
    "good",
    [
        {},
        {"top_k": -1, "stop_token_ids": [0, 99], "logit_bias": {"0": 100, "99": -1e9}},
        {"top_k": 2**31 - 1, "repetition_penalty": 2.0, "stop_token_ids": None, "logit_bias": None},
        {"top_k": "five", "stop_token_ids": 5, "logit_bias": "x"},  # SGLang's to refuse
    ],
)
def test_good_parameters(good):
    check_sampling(good, 100)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"top_k": 10**12}, ["top_k = 1000000000000", "-1 to 2147483647"]),
        ({"stop_token_ids": [5, 100]}, ["stop_token_ids holds 100", "0 to 99"]),
        ({"stop_token_ids": [-1]}, ["stop_token_ids holds -1", "0 to 99"]),
        ({"logit_bias": {"x": 1}}, ["logit_bias holds 'x'", "0 to 99"]),
        ({"logit_bias": {"١": 1}}, ["logit_bias holds", "0 to 99"]),
        ({"logit_bias": {"100": 1}}, ["logit_bias holds '100'", "0 to 99"]),
        ({"logit_bias": {"7": float("inf")}}, ["logit_bias.7 = inf", "-1000000000.0 to"]),
        ({"n": 0}, ["n = 0", "1 or more"]),
        ({"repetition_penalty": 1e-30}, ["repetition_penalty = 1e-30", "0.01 to 2"]),
    ],
)
def test_bad_parameters_are_refused_with_what_is_allowed(bad, words):
    with pytest.raises(ValueError, match="allowed are") as refusal:
        check_sampling(bad, 100)
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"stop": ""}, "stop holds an empty string"),
        ({"stop": ["a", ""]}, "stop holds an empty string"),
        ({"stop_regex": ""}, "stop_regex holds an empty string"),
        ({"stop_regex": ["a+", "("]}, r"stop_regex = '\(': missing \)"),
    ],
)
def test_stops_that_stop_everything_or_nothing(bad, words):
    check_sampling({"stop": ["a"], "stop_regex": "a+"}, 100)
    check_sampling({"stop": None, "stop_regex": None}, 100)
    with pytest.raises(ValueError, match=words):
        check_sampling(bad, 100)


@pytest.mark.parametrize("field", ["image_data", "video_data", "audio_data"])
def test_images_are_not_ignored(field):
    request = SimpleNamespace(**{field: ["data:"]})
    with pytest.raises(ValueError, match=f"{field} is given: .* text only"):
        validate(lambda *given: None, MANAGER, request, [1])
    sees = SimpleNamespace(model_config=SimpleNamespace(vocab_size=100, is_multimodal=True))
    validate(lambda *given: None, sees, request, [1])


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("top_logprobs_num", -1, "0 to 100"),
        ("top_logprobs_num", 101, "0 to 100"),
        ("logprob_start_len", -2, "-1 or more"),
    ],
)
def test_logprobs_that_do_not_exist(field, value, allowed):
    check_logprobs(SimpleNamespace(top_logprobs_num=100, logprob_start_len=-1), 100)
    with pytest.raises(ValueError, match=f"{field} = {value}: allowed are {allowed}"):
        check_logprobs(SimpleNamespace(**{field: value}), 100)


def test_parameters_are_judged_where_requests_are_validated():
    request = SimpleNamespace(sampling_params={"top_k": 10**12})
    with pytest.raises(ValueError, match="top_k"):
        validate(lambda *given: None, MANAGER, request, [1])
