"""Private ALS, in the order of a training.

:mod:`settings <hushrec.models.private_als.settings>` plans the releases, :mod:`train
<hushrec.models.private_als.train>` makes them, :mod:`server <hushrec.models.private_als.server>` updates the
items from one round of noisy sums, and :mod:`week <hushrec.models.private_als.week>` continues a season.
Users' side: :class:`hushrec.training.users.FittedUsers`.
"""

from hushrec.models.private_als.settings import PrivateALS as PrivateALS
