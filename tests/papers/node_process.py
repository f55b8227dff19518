"""One node as a process: submit and fetch, or crash between writing its key and uploading.

Usage: node_process.py URL FOLDER NODE ROUNDS [crash]
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

from hushrec.network.transport import Connection
from hushrec.papers.masked import client
from hushrec.papers.masked.messages import Task


def wait_for_round(connection: Connection, round: int, seconds: float) -> None:
    """Until the round has begun."""
    deadline = time.monotonic() + seconds
    while len(connection.get(Task, "task").keys) < round and time.monotonic() < deadline:
        time.sleep(0.1)


def take_part(url: str, folder: Path, node: str, rounds: int, *crash: str) -> None:
    """Submit the columns in a folder, round by round, and write the completed column to the same folder."""
    connection = Connection(url, patience=120)
    path = folder / f"{node}.key"
    key = client.PrivateKey.load(path) if path.exists() else client.PrivateKey.create(path, node, "catalogue")
    data = np.load(folder / f"{node}.npz")
    if crash:
        connection.post = lambda *arguments, **more: os._exit(9)
    for round in range(1, rounds + 1):
        wait_for_round(connection, round, 120)
        client.submit(connection, key, data["items"], data["values"])
    np.save(folder / f"{node}.npy", client.fetch(connection, key))


if __name__ == "__main__":
    take_part(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
