"""The served head against an independent one: a wrong draft is lossless, so only this sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cases import Named, greedy, send
from tests.integration.conftest import StartServer, jetspec_flags, running
from tests.support.contract import Comparison, Contract, read_trace
from tests.support.prompts import SYSTEM, chat_ids, raw_ids, texts
from tests.support.server import Server

pytestmark = pytest.mark.integration
LARGEST_GAP = 2e-3


@pytest.fixture(scope="module")
def contract(target: Any) -> Contract:
    return Contract(target)


def sum_up(contract: Contract, head: Any, trace: Path, sent: list[Named]) -> Comparison:
    records = read_trace(trace)
    whole = Comparison()
    for request, answer in sent:
        sequence = [*request["input_ids"], *answer["output_ids"]]
        # The last round's tokens past the request's end are not part of its answer.
        own = [r for r in records[request["rid"]] if r["position"] < len(sequence)]
        assert own, "the trace has no round of this request"
        part = contract.compare(head, sequence, own)
        whole.candidates += part.candidates
        whole.equal += part.equal
        whole.wrong += part.wrong
        whole.gap = max(whole.gap, part.gap)
    return whole


def check(contract: Contract, folder: Path, causal: bool, trace: Path, sent: list[Named]) -> None:
    """Equal to the reference, and not to one with the other mask."""
    right = sum_up(contract, contract.head(folder), trace, sent)
    assert right.wrong == 0
    assert right.gap < LARGEST_GAP
    other = sum_up(contract, contract.head(folder, causal=not causal), trace, sent)
    assert other.share < 0.9, "the other mask's reference matches too: the test proves nothing"
    assert right.share > other.share


def test_fresh_cached_chunked(
    contract: Contract,
    jetspec: Server,
    budget: Callable[[int], None],
    heads: dict[str, Path],
    trace: Path,
) -> None:
    """Short prompts in one chunk, long ones in several, and both again from the prefix cache."""
    short = [greedy(raw_ids(text), 16, ignore_eos=True) for text in texts(2)]
    long = [greedy(chat_ids(text, SYSTEM), 16, ignore_eos=True) for text in texts(2)]
    jetspec.flush()
    budget(16)
    sent = send(jetspec, [*short, *long], 4)
    again = send(jetspec, long, 2)
    assert all(answer["meta_info"]["cached_tokens"] > 0 for _, answer in again)
    budget(4)  # a causal head's block is cut to three depths
    sent += send(jetspec, short, 2)
    check(contract, heads["causal"], True, trace, [*sent, *again])


def test_retracted(
    contract: Contract, crowd: list[Named], heads: dict[str, Path], trace: Path
) -> None:
    """Retracted requests are prefilled again, in part from the cache."""
    retracted = [pair for pair in crowd if pair[1]["meta_info"]["num_retractions"]]
    assert retracted
    check(contract, heads["causal"], True, trace, retracted[:3])


@pytest.mark.full
def test_bidirectional_head(
    contract: Contract, start_server: StartServer, heads: dict[str, Path], tmp_path: Path
) -> None:
    """A DFlash head over the whole vocabulary, without an oracle, under forced retraction."""
    trace = tmp_path / "drafts.jsonl"
    server = start_server(
        "bidirectional",
        *jetspec_flags(heads["bidirectional"]),
        *("--max-total-tokens", "8192", "--chunked-prefill-size", "32"),
        settings={"draft_trace": str(trace), "calibration_seconds": 0},
        environment={"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "7"},
    )
    with running(server):
        requests = [greedy(chat_ids(text, SYSTEM), 24, ignore_eos=True) for text in texts(6)]
        sent = send(server, requests, 3) + send(server, requests[:2], 2)
    assert sum(answer["meta_info"]["num_retractions"] for _, answer in sent) > 0
    check(contract, heads["bidirectional"], False, trace, sent)
