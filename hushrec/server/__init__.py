"""A server of models that keeps nothing of its requests (docs/guides/serve.md)."""

from hushrec.network import service as service  # first: refuses in one sentence without the packages
