"""Typed messages over HTTP, with limits, TLS and retries."""
