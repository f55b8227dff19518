"""Private EigenRec, in the order of a training.

``settings.py`` plans the releases, ``users.py`` is the users' side, and ``train.py`` makes the releases.
``items.py`` and ``denoise.py`` estimate popularity and taste from them. ``pairs.py`` is the other model, in
which items recommend items. ``week.py`` continues a season. Sensitivities: docs/proofs/private-eigenrec.md.
"""

from hushrec.models.private_eigenrec.settings import PrivateEigenRec as PrivateEigenRec
