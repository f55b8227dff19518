"""Secure aggregation: nodes and a server train on sums that are seen in total, and noisy, only.

A node calls `client.take_part`, the server is `server.AggregationServer`; both are made of an
`agreement.Agreement` (docs/guides/secure-aggregation.md).
"""
