"""Two servers that each hold half of nothing: devices share their contributions, and both servers add noise.

Protocol and proof: docs/proofs/two-servers.md.
"""
