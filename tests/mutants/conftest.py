"""Tests from end to end that are run on planted bugs: trainings of few users."""

import pytest


@pytest.fixture(autouse=True)
def goes_on(monkeypatch, request):
    """These files have few users: that training stops at nobody has a test of its own."""
    if "endtoend" in request.node.name and "stops" not in request.node.name:
        monkeypatch.setattr("hushrec.evaluation.runs.told_from_nobody", lambda n_users, noise_sd: True)
