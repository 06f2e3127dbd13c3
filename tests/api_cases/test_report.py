"""The report of `make fuzz-api`, and which cases are left to send."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from schemathesis.generation import GenerationMode

from tests.api_cases.cases import Kind, Sent
from tests.api_cases.report import CASES_EACH, DELETIONS, Progress, report_lines

LIST, MADE = Kind("GET /things"), Kind("POST /things", GenerationMode.NEGATIVE)


def _progress(folder: Path, cases: int) -> Progress:
    file = folder / "progress"
    file.touch()
    return Progress(file, cases)


def test_a_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    progress = _progress(tmp_path, 10 * CASES_EACH)
    assert progress.count(LIST, 7, kinds=2) == CASES_EACH
    progress.record(LIST, 7, CASES_EACH, Sent(Counter({200: CASES_EACH})))
    again = _progress(tmp_path, 10 * CASES_EACH)
    assert again.left() == 9 * CASES_EACH
    assert again.count(LIST, 7, kinds=2) == 0
    assert again.count(LIST, 8, kinds=2) == again.count(MADE, 7, kinds=2) == CASES_EACH


def test_a_kind_that_has_no_more_cases_leaves_the_rest_to_others(tmp_path: Path) -> None:
    progress = _progress(tmp_path, 1000)
    progress.record(LIST, 7, CASES_EACH, Sent(Counter({200: 1})))
    assert progress.count(LIST, 8, kinds=2) == 0
    assert progress.count(MADE, 8, kinds=2) == CASES_EACH


def test_no_more_cases_are_sent_than_were_asked_for(tmp_path: Path) -> None:
    progress = _progress(tmp_path, 30)
    progress.record(LIST, 7, 15, Sent(Counter({200: 15})))
    progress.record(MADE, 7, 15, Sent(Counter({400: 12})))
    assert progress.count(LIST, 8, kinds=2) == progress.left() == 3
    progress.record(LIST, 8, 3, Sent(Counter({200: 3})))
    assert progress.count(LIST, 9, kinds=2) == progress.left() == 0


def test_few_cases_are_of_every_kind(tmp_path: Path) -> None:
    assert _progress(tmp_path, 100).count(LIST, 7, kinds=50) == 2
    assert _progress(tmp_path, 10).count(LIST, 7, kinds=50) == 1


def test_deletions_and_cases_that_lead_nowhere_are_few(tmp_path: Path) -> None:
    progress = _progress(tmp_path, 100 * CASES_EACH)
    assert progress.count(Kind("DELETE /things/{thing_id}"), 7, kinds=3) == DELETIONS
    assert progress.count(Kind("GET /things/{thing_id}", elsewhere=True), 7, kinds=3) == CASES_EACH // 8


def test_the_report_names_operations_that_never_succeeded_and_each_fault_once(tmp_path: Path) -> None:
    progress = _progress(tmp_path, 100)
    fault = {"500": "500: b'oops'\nPOST /things"}
    progress.record(LIST, 7, 10, Sent(Counter({200: 3, 404: 1})))
    for seed in (7, 8):
        progress.record(MADE, seed, 10, Sent(Counter({400: 9, 500: 1}), fault))
    assert report_lines(progress.file.read_text().splitlines(), 100) == [
        "GET /things  200: 3, 404: 1 (75% 2xx, 25% 4xx)",
        "POST /things  400: 18, 500: 2 (0% 2xx, 90% 4xx)",
        "never 2xx: POST /things",
        "invalid: 20 cases, 0% 2xx, 90% 4xx",
        "valid: 4 cases, 75% 2xx, 25% 4xx",
        "24 cases of 2 operations: 200: 3, 400: 18, 404: 1, 500: 2 (13% 2xx, 80% 4xx)",
        "100 were asked for: the run ended early, or no operation has other cases",
        "FAULT: POST /things (invalid): 500: b'oops'\nPOST /things",
    ]
