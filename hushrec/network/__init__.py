"""The talk of nodes and servers: typed messages over HTTP, with limits, TLS and retries."""
