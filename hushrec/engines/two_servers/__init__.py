"""Two servers that each hold half of nothing: nodes share their contributions, and both servers add noise.

Protocol and proof: docs/proofs/two-servers.md.
"""
