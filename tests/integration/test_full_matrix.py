"""The whole losslessness matrix and the counterfactual curve: hours on two cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cases import delta, differing, flush_series, greedy, ids
from tests.integration.conftest import StartServer, jetspec_flags, running
from tests.integration.test_lossless import changing_budget
from tests.support.prompts import SYSTEM, chat_ids, many
from tests.support.reference import Reference
from tests.support.server import Server, total

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(6 * 3600)]
PROMPTS = int(os.environ.get("JETSPEC_TEST_PROMPTS", "204"))
TOKENS = 128


@pytest.fixture(scope="module")
def requests() -> list[dict[str, Any]]:
    return [greedy(chat_ids(text), TOKENS) for text in many(PROMPTS)]


@pytest.fixture(scope="module")
def expected(reference: Reference, requests: list[dict[str, Any]]) -> list[list[int]]:
    return ids(reference.answers(requests))


@pytest.fixture(scope="module")
def roomy(
    start_server: StartServer, heads: dict[str, Path], with_oracle: dict[str, str]
) -> Iterator[Server]:
    """Oracle and causal head with room for every batch."""
    server = start_server(
        "roomy",
        *jetspec_flags(heads["causal"]),
        *("--max-total-tokens", "16384"),
        settings={"calibration_seconds": 0},
        environment=with_oracle,
    )
    yield server
    server.stop()


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("tree", [1, 2, 16, 64])
def test_every_budget_and_batch(
    tree: int,
    batch: int,
    roomy: Server,
    requests: list[dict[str, Any]],
    expected: list[list[int]],
) -> None:
    roomy.flush()
    roomy.set_budget(tree)
    assert differing(expected, ids(roomy.generate_all(requests, batch))) == []


@pytest.mark.parametrize("batch", [4, 16])
def test_budget_changes(
    batch: int, roomy: Server, requests: list[dict[str, Any]], expected: list[list[int]]
) -> None:
    with changing_budget(roomy, (64, 2, 16, 1, 33, 8)) as answers:
        found = ids(roomy.generate_all(requests, batch))
    assert differing(expected, found) == []
    assert answers
    assert all(answers)


def test_cache_hits(
    roomy: Server, requests: list[dict[str, Any]], expected: list[list[int]]
) -> None:
    """Every prompt again, the second time from the cache where it still holds it."""
    roomy.flush()
    roomy.set_budget(16)
    pairs = [request for request in requests for _ in range(2)]
    answers = roomy.generate_all(pairs, 1)
    assert differing([e for e in expected for _ in range(2)], ids(answers)) == []
    assert all(answer["meta_info"]["cached_tokens"] > 0 for answer in answers[1::2])


@pytest.mark.parametrize("head", ["causal", "bidirectional"])
def test_small_chunks_and_forced_retraction(
    head: str,
    start_server: StartServer,
    heads: dict[str, Path],
    with_oracle: dict[str, str],
    reference: Reference,
) -> None:
    """Chunks of 32, a retraction every few steps, and a pool that is too small anyway."""
    requests = [greedy(chat_ids(text, SYSTEM), TOKENS) for text in many(PROMPTS)[::4]]
    expected = ids(reference.answers(requests))
    server = start_server(
        f"retracting-{head}",
        *jetspec_flags(heads[head]),
        *("--chunked-prefill-size", "32", "--max-total-tokens", "5000"),
        settings={"calibration_seconds": 0},
        environment={
            **with_oracle,
            "SGLANG_TEST_RETRACT": "1",
            "SGLANG_TEST_RETRACT_INTERVAL": "23",
        },
    )
    with running(server):
        for tree, batch in ((16, 4), (64, 16)):
            server.set_budget(tree)
            answers = server.generate_all(requests, batch)
            assert differing(expected, ids(answers)) == []
            assert sum(answer["meta_info"]["num_retractions"] for answer in answers) > 0


@pytest.mark.parametrize("rule", ["chain", "accum_logp"])
def test_other_rules(
    rule: str,
    start_server: StartServer,
    heads: dict[str, Path],
    with_oracle: dict[str, str],
    requests: list[dict[str, Any]],
    expected: list[list[int]],
) -> None:
    """A DFlash chain and the release's tree, with a bidirectional head."""
    server = start_server(
        f"rule-{rule}",
        *jetspec_flags(heads["bidirectional"]),
        *("--max-total-tokens", "16384"),
        settings={"calibration_seconds": 0, "rule": rule},
        environment=with_oracle,
    )
    with running(server):
        assert server.jetspec()["rule"] == rule
        for tree in (16, 64):
            server.set_budget(tree)
            found = ids(server.generate_all(requests[:32], 8))
            assert differing(expected[:32], found) == []


@pytest.mark.skipif(
    not os.environ.get("JETSPEC_HEAD"), reason="JETSPEC_HEAD names no trained head to measure"
)
def test_counterfactual_curve(start_server: StartServer, requests: list[dict[str, Any]]) -> None:
    """tau(B') read off a run at B=64 is tau measured at B', within 3 %."""
    server = start_server(
        "trained",
        *jetspec_flags(Path(os.environ["JETSPEC_HEAD"])),
        *("--max-total-tokens", "16384"),
        settings={"calibration_seconds": 0, "budget": 64},
    )
    smaller = (4, 8, 16, 32)
    with running(server):
        before = flush_series(server)
        server.generate_all(requests, 8)
        after = flush_series(server)
        rounds = delta(before, after, "jetspec_request_rounds_total", budget="64")
        name = "jetspec_accepted_node_budget_bucket"
        predicted = {
            tree: 1 + delta(before, after, name, budget="64", le=f"{tree}.0") / rounds
            for tree in smaller
        }
        measured = {}
        for tree in smaller:
            server.set_budget(tree)
            before = flush_series(server)
            server.generate_all(requests, 8)
            after = flush_series(server)
            label = {"budget": str(tree)}
            measured[tree] = delta(before, after, "jetspec_tokens_total", **label) / delta(
                before, after, "jetspec_request_rounds_total", **label
            )
    for tree in smaller:
        off = predicted[tree] / measured[tree] - 1
        print(
            f"B'={tree}: read off {predicted[tree]:.3f}, measured {measured[tree]:.3f}, {off:+.1%}"
        )
    assert all(predicted[tree] == pytest.approx(measured[tree], rel=0.03) for tree in smaller)
    assert total(after, "jetspec_info") == 1
