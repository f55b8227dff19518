from .domain import Domain as Domain
from .generators import realistic as realistic
from .lifelike import lifelike as lifelike
from .ratings import Ratings as Ratings
from .sampling import sample_per_user as sample_per_user
from .splits import (
    k_folds as k_folds,
    leave_k_out as leave_k_out,
    leave_last_out as leave_last_out,
    split_by_time as split_by_time,
    split_ratings as split_ratings,
    strong_generalization as strong_generalization,
)
from .store import Store as Store
