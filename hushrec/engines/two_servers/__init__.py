"""Training over two servers: nodes split their answers into two shares, and each server adds noise.

Protocol and proof: docs/proofs/two-servers.md.
"""
