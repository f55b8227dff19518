from . import (
    data as data,
    evaluation as evaluation,
    models as models,
    papers as papers,
    privacy as privacy,
)
from .data import (
    Domain as Domain,
    Ratings as Ratings,
    Store as Store,
    leave_k_out as leave_k_out,
    realistic as realistic,
    split_by_time as split_by_time,
    split_ratings as split_ratings,
    strong_generalization as strong_generalization,
)
from .errors import (
    BudgetError as BudgetError,
    HushrecError as HushrecError,
    InputError as InputError,
    LedgerError as LedgerError,
    ModelFileError as ModelFileError,
)
from .evaluation import (
    compare as compare,
    cross_validate as cross_validate,
    evaluate as evaluate,
)
from .evaluation.tuning import tune as tune
from .models import (
    ALS as ALS,
    EASE as EASE,
    Both as Both,
    ItemBias as ItemBias,
    Popular as Popular,
    PrivateALS as PrivateALS,
    PrivateEigenRec as PrivateEigenRec,
)
from .privacy import (
    Accountant as Accountant,
    Bounded as Bounded,
    Budget as Budget,
    Gaussian as Gaussian,
    Ledger as Ledger,
    Plan as Plan,
    PrivacyStatement as PrivacyStatement,
    Release as Release,
    Season as Season,
    SeasonAccountant as SeasonAccountant,
)
from .public import PublicRatings as PublicRatings
from .serving.batch import write_lists as write_lists
from .serving.model import Model as Model, load as load
from .training.entry import train as train
from .training.estimator import Estimator as Estimator
from .training.gate import Gate as Gate

__version__: str
