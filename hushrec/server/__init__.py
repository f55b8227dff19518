"""A server of models that forgets whom it served (docs/guides/serve.md); imported by the command that starts
it."""
