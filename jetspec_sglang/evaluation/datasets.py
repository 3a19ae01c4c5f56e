"""Prompts of the named evaluation and training sets, from local files or the hub.

Contract: `load_prompts(name)` looks for `<name>.jsonl` in the data folders first (flag, then
`JETSPEC_DATA`, then `<cache>/data`), and asks the hub only if that is allowed. If a set is not
found, the error lists all places. `chat` is part of the package.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from jetspec_sglang.cache import cache_dir

Row = Mapping[str, Any]

_FIELDS = ("prompt", "question", "text", "problem")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class DataSet:
    """The origin of a set, and how a row becomes the user's message.

    `fields` are tried in order; `keep` picks the rows of the split when one file holds several.
    `answer` is the field of the authors' own answer, where they give one as text.
    """

    file: str
    fields: tuple[str, ...]
    licence: str
    hub: str = ""
    config: str | None = None
    split: str = "test"
    keep: Callable[[Row], bool] = lambda row: True
    evaluation: bool = True
    answer: str = ""

    def prompt(self, row: Row) -> str:
        for field in self.fields:
            value = row.get(field)
            if isinstance(value, list) and value:
                value = value[0]
            if isinstance(value, str) and value.strip():
                return value.strip()
        raise ValueError(f"none of {', '.join(self.fields)} is a text in {sorted(row)}")


def _mbpp(low: int, high: int) -> Callable[[Row], bool]:
    return lambda row: low <= int(row["task_id"]) <= high


DATA_SETS: dict[str, DataSet] = {
    "gsm8k": DataSet("gsm8k_eval.jsonl", ("question", "prompt"), "MIT", "openai/gsm8k", "main"),
    "gsm8k_train": DataSet(
        "gsm8k_train.jsonl", ("question",), "MIT", "openai/gsm8k", "main", "train",
        evaluation=False, answer="answer",
    ),
    "math500": DataSet("math500.jsonl", ("problem",), "MIT", "HuggingFaceH4/MATH-500"),
    "aime25": DataSet("aime25.jsonl", ("problem", "question"), "see hub", "math-ai/aime25"),
    "humaneval": DataSet("humaneval.jsonl", ("prompt",), "MIT", "openai/openai_humaneval"),
    "mbpp": DataSet(
        "mbpp.jsonl", ("text", "prompt"), "CC-BY-4.0", "google-research-datasets/mbpp", "full",
        "test", keep=_mbpp(11, 510),
    ),
    "mbpp_train": DataSet(
        "mbpp.jsonl", ("text", "prompt"), "CC-BY-4.0", "google-research-datasets/mbpp", "full",
        "train", keep=_mbpp(601, 974), evaluation=False, answer="code",
    ),
    "livecodebench": DataSet(
        "livecodebench.jsonl", ("question_content",), "see hub",
        "livecodebench/code_generation_lite",
    ),
    "mtbench": DataSet(
        "mtbench.jsonl", ("turns", "prompt"), "Apache-2.0", "HuggingFaceH4/mt_bench_prompts",
        split="train",
    ),
    "chat": DataSet("chat.jsonl", ("prompt",), "Apache-2.0"),
}  # fmt: skip
"""The authors' splits; of a conversation (MT-Bench) the first turn."""


def load_prompts(
    name: str, folders: Sequence[str | Path] = (), *, allow_hub: bool = False
) -> list[str]:
    """User messages of a named set, a JSONL file, a folder of them, or a hub data set.

    Rows of what has no name here hold the message as prompt, question, text or problem; of a hub
    data set (`owner/name`) the split `train` is read.
    """
    if name not in DATA_SETS:
        return _unnamed(name, allow_hub)
    return _prompts(DATA_SETS[name], _rows(name, folders, allow_hub))


def load_answers(
    name: str, folders: Sequence[str | Path] = (), *, allow_hub: bool = False
) -> dict[str, str]:
    """The authors' own answers of a named set by user message. ValueError where it has none."""
    data_set = DATA_SETS.get(name)
    if data_set is None or not data_set.answer:
        known = ", ".join(key for key, value in DATA_SETS.items() if value.answer)
        raise ValueError(f"{name}: this set has no answers by its authors; sets that have: {known}")
    rows = [row for row in _rows(name, folders, allow_hub) if data_set.keep(row)]
    return {
        data_set.prompt(row): str(row[data_set.answer]).replace("\r\n", "\n").strip()
        for row in rows
    }


def _rows(name: str, folders: Sequence[str | Path], allow_hub: bool) -> list[Row]:
    data_set = DATA_SETS[name]
    places = [Path(folder) / data_set.file for folder in _folders(folders)]
    places.append(
        Path(str(resources.files("jetspec_sglang.evaluation") / "prompts" / data_set.file))
    )
    for place in places:
        if place.is_file():
            return _read(place)
    if data_set.hub and allow_hub:
        return _download(data_set)
    looked = ", ".join(str(place) for place in places)
    hint = f"; it is {data_set.hub} on the hub" if data_set.hub else ""
    raise FileNotFoundError(f"data set {name}: not found, looked for {looked}{hint}")


def _unnamed(name: str, allow_hub: bool) -> list[str]:
    path = Path(name)
    rows = DataSet(path.name, _FIELDS, "as its maker says", hub=name, split="train")
    if path.is_file():
        return _prompts(rows, _read(path))
    if path.is_dir() and (files := sorted(path.glob("*.jsonl"))):
        return [prompt for file in files for prompt in _prompts(rows, _read(file))]
    if allow_hub and _HUB_ID.fullmatch(name):
        return _prompts(rows, _download(rows))
    known = ", ".join(DATA_SETS)
    raise FileNotFoundError(
        f"{name}: not a JSONL file, not a folder with one, not one of {known}, and downloads from "
        "the hub are not allowed"
    )


def _prompts(data_set: DataSet, rows: Iterable[Row]) -> list[str]:
    return [data_set.prompt(row) for row in rows if data_set.keep(row)]


def _folders(folders: Sequence[str | Path]) -> list[Path]:
    found = [Path(folder) for folder in folders]
    if os.environ.get("JETSPEC_DATA"):
        found.append(Path(os.environ["JETSPEC_DATA"]))
    return [*found, cache_dir() / "data"]


def _read(path: Path) -> list[Row]:
    rows: list[Row] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: must be a JSON object")
            rows.append(row)
    return rows


def _download(data_set: DataSet) -> list[Row]:
    from datasets import load_dataset

    try:
        return list(load_dataset(data_set.hub, data_set.config, split=data_set.split))
    except Exception as error:
        raise FileNotFoundError(f"{data_set.hub}: the hub did not provide it: {error}") from error
