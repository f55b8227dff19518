"""Masked completion, and what undoes it: "Homomorphic Matrix Completion" (Liu, Li and Wang 2022).

Obfuscation, not privacy (docs/papers/homomorphic.md). It is no estimator but a client, a server and an
attack, which the commands ``papers serve-completion``, ``papers node`` and ``papers audit-masked`` call.
"""
