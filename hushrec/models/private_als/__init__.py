"""Private ALS. Read ``settings.py``, ``train.py``, ``updates.py`` and ``week.py``, in this order.

Users' side: :class:`hushrec.training.users.FittedUsers`.
"""

from hushrec.models.private_als.settings import PrivateALS as PrivateALS
