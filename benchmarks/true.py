"""Check that the product's sentences are true: the second part of ``make trust``.

A test of a printed or documented sentence has a mark, ``@pytest.mark.true("D1")``. This runs
them all and prints a line for each sentence below, PASS or what falls short; it exits 1 if any does.
"""

import contextlib
import io
import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest

TOY = os.environ.get("TOY") == "1"
SENTENCES = {
    "A1": "An edited model file is refused before a week is charged, and no number in it unbounds a user",
    "A2": "One user's long texts are no ids, and stop nobody else's run, in any format",
    "A3": "One charged noisy share of a release leaves a server, also after kills and from a copied folder",
    "A4": "Injected noise is never booked in a ledger, a server's neither",
    "A5": "The server's counts tell strangers nothing of single requests",
    "A6": "A catalogue that shrinks, however far, ends no week in an error after a charge",
    "A7": "A statement lists all that its season charged, skipped weeks too",
    "A8": "What is written is for its owner alone, and a training killed at any point can be resumed",
    "A9": "Lists on a wide catalogue are about as good as popularity, or better, at the same budget",
    "C1": "Nothing is promised before training that is not known",
    "C2": "Models stand beside what their released values give for nothing; prices are told beforehand",
    "D1": "A season's budget is there when its weeks come",
    "D2": "The line for cron, run twice, trains one week",
    "D3": "A run without privacy on a data set with a ledger is asked for twice",
    "D4": "The ledger without a name lists all data sets",
    "D5": "A dossier claims only what was checked, in English and German, and marks what was not",
    "D6": "Settings planned for another budget are refused, and a large delta is named, before a charge",
    "D7": "A privacy statement that lacks a key is refused at any depth",
    "E1": "A list's scores never rise with rank, and its ratings are what predict says",
    "E2": "What Python returns is JSON as it is; lists are explained alike in Python, shell, server, browser",
    "E3": "Metrics bear their usual names where they have their usual definitions",
    "S1": "No request takes a server long, whatever its fields, and none holds up another",
    "S3": "Without a token, lists and metrics are given only under the server's own names",
    "S4": "Pages of declared origins alone read a server's answers, and no page its metrics",
    "S2": "A condition is true of the same items in Python, in the browser and in SQL",
    "E5": "Similar items name their sources and come from the model file alone, the same in every process",
    "E6": "Lists of what comes next follow the user's own order, which a server neither keeps nor repeats",
    "E4": "What split, demo, reprs and the examples of the server's API say is so",
    "E7": "The odds and the word for an epsilon are true, and the same in output and on the page",
    "E8": "A folder of lists or parts that is written again holds those of the last run alone",
    "E9": "A purchase without stars is a like in lists and no rating, in Python, shell, server and browser",
    "T1": "No server sees a rating or a node's number of users; a user of several nodes is covered",
    "T2": "A damaged file of two servers or a node is refused, and makes no other model",
    "T3": "A stranger takes little of a server, and a lying server little of a client",
    "L1": "A file that is no ledger of this version is refused and left as it is, its log too",
    "L2": "Of trainings that begin together, those that fit are made, and the others charge nothing",
    "L3": "No user costs more in a season than declared, after kills, races and copies",
    "I1": "A table or a header given as a catalogue is refused by the file alone, at no cost",
    "I2": "check names what a file of ratings really holds; split --from refuses times in another unit",
    "I3": "Every type of column is read or refused in one sentence, and integer ids are exact",
    "P1": "Popularity from a release and donors is nearer to the truth than from either alone",
    "P2": "plan and train say where public data decide, and not more budget",
    "P3": "A table of items that tells tastes apart gets weight in lists, and a random one gets less",
    "F1": "A job whose streams are closed or full ends in 0 where its work is done, and charges nothing else",
}


class Reporter:
    """Gathers what came of the tests of each sentence."""

    def __init__(self) -> None:
        self.marks: dict[str, tuple[str, ...]] = {}
        self.outcomes: dict[str, list[tuple[str, str]]] = defaultdict(list)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remember which sentence a test is of."""
        for item in items:
            self.marks[item.nodeid] = tuple(str(m.args[0]) for m in item.iter_markers("true"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what came of a test: its call, or what went wrong before or after."""
        if report.when == "call" or report.outcome != "passed":
            for sentence in self.marks[report.nodeid]:
                self.outcomes[sentence].append((report.outcome, report.nodeid))


def main() -> int:
    """Run the marked tests; 1 if a sentence is not true, or no test carries it out."""
    os.chdir(Path(__file__).parents[1])
    reporter = Reporter()
    with contextlib.redirect_stdout(io.StringIO()):
        where = "tests/evaluation/test_metrics.py" if TOY else "tests"
        pytest.main(["-m", "true and not full", where], plugins=[reporter])
    wrong = sorted(reporter.outcomes.keys() - SENTENCES.keys())
    for number, sentence in SENTENCES.items():
        came = reporter.outcomes[number]
        failed = [name for outcome, name in came if outcome == "failed"]
        passed = sum(outcome == "passed" for outcome, _ in came)
        if TOY and not came:
            continue
        verdict = "PASS" if passed and not failed else f"FALLS SHORT: {'; '.join(failed) or 'no test ran'}"
        print(f"{number:4} {verdict}  {sentence} ({passed} tests)")
        wrong += [number] * (verdict != "PASS")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
