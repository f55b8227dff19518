"""Parity vectors: small models, histories and what must come out, for Python and for the browser's client."""
