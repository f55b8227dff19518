"""Attacks and tests that measure what a release reveals."""
