"""A server of models that keeps nothing of its requests (docs/guides/serve.md)."""
