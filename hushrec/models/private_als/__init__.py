"""Private ALS. Read ``model.py``, ``settings.py``, ``users.py``, ``train.py``, ``updates.py``, ``week.py``.

Users' side: :class:`hushrec.models.private_als.users.FittedUsers`.
"""

from hushrec.models.private_als.model import PrivateALS as PrivateALS
