"""Attacks and tests that show what a release gives away."""
