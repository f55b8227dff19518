"""An estimator with workers that die; a separate file, because worker processes import it."""

import os
import signal
from pathlib import Path
from typing import ClassVar

from hushrec.data import Ratings
from hushrec.models import ItemBias
from hushrec.training.users import Users

#: Folder of the ways to die: each file is taken once, by the next worker.
FOLDER = "HUSHREC_TEST_DEATHS"
WAYS = ("SIGKILL", "exit", "SIGSTOP")


class Mortal(ItemBias):
    """Item bias with workers that may die."""

    name: ClassVar[str] = ItemBias.name

    def users(self, ratings: Ratings) -> Users:
        """Die in the way that the folder asks for, if any, else return the users."""
        if (folder := os.environ.get(FOLDER)) and (name := os.environ.get(f"{FOLDER}_WORKER")):
            for way in sorted(Path(folder).iterdir()):
                try:
                    way.rename(Path(folder).parent / f"taken-{way.name}-{name}")
                except OSError:  # another one was faster
                    continue
                if "exit" in way.name:
                    os._exit(1)
                os.kill(os.getpid(), getattr(signal, way.name.partition(".")[0]))
        return super().users(ratings)
