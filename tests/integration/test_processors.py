"""A custom logit processor that reads its request's tokens, against plain decoding."""

from __future__ import annotations

import json
from pathlib import Path

import dill
import pytest

from tests.integration.cases import greedy
from tests.integration.conftest import StartServer, jetspec_flags, running
from tests.support.prompts import chat_ids, texts

pytestmark = [pytest.mark.integration, pytest.mark.full]
FLAGS = ("--enable-custom-logit-processor", "--max-total-tokens", "4096")


def processor() -> str:
    """Forbids the last tokens of a request, in the form that SGLang's API takes."""

    class Fresh:
        def __call__(self, logits, params):
            for row, param in zip(logits, params, strict=True):
                row[list(param["__req__"].output_ids[-param["last"] :])] = -float("inf")
            return logits

    return json.dumps({"callable": dill.dumps(Fresh).hex()})


def test_a_processor_sees_each_nodes_own_path(
    start_server: StartServer, heads: dict[str, Path], with_oracle: dict[str, str]
) -> None:
    free = [greedy(chat_ids(text), 32) for text in texts(3)]
    # SGLang gives a processor its request only with parameters of its own.
    requests = [
        request
        | {"custom_logit_processor": processor()}
        | {"sampling_params": {**request["sampling_params"], "custom_params": {"last": 6}}}
        for request in free
    ]
    # Under overlap scheduling plain SGLang shows a processor the output without its last token.
    flags = (*FLAGS, "--disable-overlap-schedule")
    with running(start_server("plain-processor", *flags)) as plain:
        expected = [plain.generate(request)["output_ids"] for request in requests]
        assert expected != [plain.generate(request)["output_ids"] for request in free]
    flags = (*jetspec_flags(heads["causal"]), *FLAGS)
    with running(start_server("processor", *flags, environment=with_oracle)) as server:
        for budget in (4, 32):
            server.set_budget(budget)
            found = [answer["output_ids"] for answer in server.generate_all(requests, 3)]
            assert found == expected
