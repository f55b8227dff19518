"""A completion server as a process: prints its address.

Usage: server_process.py DATABASE PORT SETTINGS-JSON
"""

import json
import sys
import time

from hushrec.network.service import Service
from hushrec.papers.masked.server import CompletionServer, Settings, Store

settings = Settings(**json.loads(sys.argv[3]))
server = CompletionServer(settings, Store(sys.argv[1], settings))
with Service(server.answer, port=int(sys.argv[2])) as service:
    print(service.url, flush=True)
    time.sleep(600)
