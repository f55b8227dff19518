"""One-bit models on the command line."""

import json

import pytest

import hushrec


@pytest.mark.parametrize("mechanism", ["input", "output"])
def test_every_mechanism_is_trained_reported_and_evaluated(run, files, mechanism):
    line = f"train {files.train} --model one-bit --set mechanism={mechanism} --set threshold=3.5"
    line += " --unit rating --epsilon 4 --delta 1e-6 --out likes.hush"
    result = run(*line.split(), *files.domain)
    assert result.exit_code == 0, result.stderr
    model = hushrec.load("likes.hush")
    assert model.estimator.mechanism == mechanism and model.estimator.threshold == 3.5
    text = " ".join(run("report", "likes.hush").stdout.split())
    assert "unit: rating, relation: replace" in text and "q times epsilon" in text
    evaluation = run("evaluate", "likes.hush", files.train, files.test, "--json", "--resamples", "10")
    figures = json.loads(evaluation.stdout)
    assert 0.3 < figures["accuracy"] <= 1 and figures["log_loss"] > 0 and figures["rmse"] is None
