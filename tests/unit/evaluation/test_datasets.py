"""Named data sets: where they are looked for, which rows and which field they give."""

import json

import pytest

from jetspec_sglang.evaluation.datasets import DATA_SETS, load_answers, load_prompts


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_chat_prompts_are_part_of_the_package():
    prompts = load_prompts("chat")
    assert len(prompts) == len(set(prompts)) >= 40


def test_splits_and_fields(tmp_path):
    write(tmp_path / "mbpp.jsonl", [{"task_id": i, "text": f"t{i}"} for i in (1, 11, 510, 601)])
    assert load_prompts("mbpp", [tmp_path]) == ["t11", "t510"]
    assert load_prompts("mbpp_train", [tmp_path]) == ["t601"]
    write(tmp_path / "mtbench.jsonl", [{"turns": ["one", "two"]}])
    assert load_prompts("mtbench", [tmp_path]) == ["one"]


def test_the_authors_answers(tmp_path):
    rows = [{"task_id": i, "text": f" t{i}", "code": "a\r\nb\r\n"} for i in (11, 601)]
    write(tmp_path / "mbpp.jsonl", rows)
    assert load_answers("mbpp_train", [tmp_path]) == {"t601": "a\nb"}
    with pytest.raises(ValueError, match="sets that have: gsm8k_train, mbpp_train"):
        load_answers("chat")


def test_a_missing_set_names_every_place(tmp_path, monkeypatch):
    monkeypatch.setenv("JETSPEC_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("JETSPEC_CACHE", str(tmp_path / "cache"))
    with pytest.raises(FileNotFoundError) as error:
        load_prompts("math500", [tmp_path / "flag"])
    for part in ("flag", "env", "cache", "math500.jsonl", "HuggingFaceH4/MATH-500"):
        assert part in str(error.value)


def test_the_hub_is_asked_only_when_allowed(tmp_path, monkeypatch):
    monkeypatch.setenv("JETSPEC_CACHE", str(tmp_path))
    asked = []

    def load_dataset(name, config, split):
        asked.append((name, config, split))
        return [{"question": "q?"}]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(FileNotFoundError):
        load_prompts("gsm8k")
    assert not asked
    assert load_prompts("gsm8k", allow_hub=True) == ["q?"]
    assert load_prompts("some/prompts", allow_hub=True) == ["q?"]
    assert asked == [("openai/gsm8k", "main", "test"), ("some/prompts", None, "train")]


def test_a_file_of_prompts(tmp_path):
    write(tmp_path / "mine.jsonl", [{"prompt": " a "}, {"question": "b"}])
    assert load_prompts(str(tmp_path / "mine.jsonl")) == ["a", "b"]
    write(tmp_path / "more.jsonl", [{"text": "c"}])
    assert load_prompts(str(tmp_path)) == ["a", "b", "c"]
    with pytest.raises(
        FileNotFoundError, match="not a JSONL file, not a folder with one, not one of"
    ):
        load_prompts(str(tmp_path / "other.jsonl"))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "line 1: not JSON"), ("[1]\n", "line 1: must be"), ("{}\n", "none of")],
)
def test_bad_lines_are_named(tmp_path, text, message):
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_prompts(str(tmp_path / "bad.jsonl"))


def test_training_and_evaluation_sets_are_told_apart():
    assert [name for name, one in DATA_SETS.items() if not one.evaluation] == [
        "gsm8k_train",
        "mbpp_train",
    ]
