"""Loads the machine code of the kernels that most tests call: imported before a process is forked."""

import hushrec
from hushrec.models import PrivateALS, PrivateEigenRec

_RATINGS = hushrec.realistic(50, 20, 400, seed=0)
for _model in (PrivateALS.of(rank=2, iterations=1), PrivateEigenRec(rank=2, iterations=1)):
    _model.fit(_RATINGS, hushrec.Accountant(hushrec.Budget(5, 1e-6))).recommend({_RATINGS.domain.items[0]: 5})
