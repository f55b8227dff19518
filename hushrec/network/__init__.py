"""How nodes and servers talk: typed messages over HTTP, with limits, TLS and retries."""
