from .algorithms import (
    ALS as ALS,
    EASE as EASE,
    Both as Both,
    GlobalMean as GlobalMean,
    ItemBias as ItemBias,
    Popular as Popular,
    PrivateALS as PrivateALS,
    PrivateEigenRec as PrivateEigenRec,
    UserLevelOneBit as UserLevelOneBit,
)
from .batch import write_lists as write_lists
from .billboard import Billboard as Billboard, load as load
from .data import (
    Domain as Domain,
    Ratings as Ratings,
    Store as Store,
    k_folds as k_folds,
    leave_k_out as leave_k_out,
    paired_likes as paired_likes,
    realistic as realistic,
    sample_per_user as sample_per_user,
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
from .estimator import Estimator as Estimator
from .evaluation import (
    Comparison as Comparison,
    Estimate as Estimate,
    Evaluation as Evaluation,
    compare as compare,
    cross_validate as cross_validate,
    evaluate as evaluate,
)
from .evaluation.tuning import tune as tune
from .gate import Gate as Gate
from .papers.dpals import DPALS as DPALS
from .papers.frank_wolfe import (
    CorrectiveFrankWolfe as CorrectiveFrankWolfe,
    FrankWolfe as FrankWolfe,
    PrivateFrankWolfe as PrivateFrankWolfe,
    PrivateProjectedGradient as PrivateProjectedGradient,
    PrivateSVD as PrivateSVD,
    ProjectedGradient as ProjectedGradient,
)
from .papers.mcsherry_mironov import CleansedSVD as CleansedSVD
from .papers.one_bit import OneBitCompletion as OneBitCompletion
from .privacy import (
    Accountant as Accountant,
    Bound as Bound,
    Bounded as Bounded,
    Budget as Budget,
    Gaussian as Gaussian,
    Laplace as Laplace,
    Ledger as Ledger,
    LedgerSummary as LedgerSummary,
    Mechanism as Mechanism,
    NoiseSource as NoiseSource,
    Plan as Plan,
    PrivacyStatement as PrivacyStatement,
    RandomizedResponse as RandomizedResponse,
    Release as Release,
    RepeatAndSelect as RepeatAndSelect,
    Season as Season,
    SeasonAccountant as SeasonAccountant,
    SeasonSummary as SeasonSummary,
    SystemNoise as SystemNoise,
    Week as Week,
    counted as counted,
    default_path as default_path,
    delta_of as delta_of,
    epsilon_of as epsilon_of,
    jointly as jointly,
    mu_of as mu_of,
    mu_of_pure as mu_of_pure,
    positive as positive,
    signed as signed,
    together as together,
    total_mu as total_mu,
)
from .registry import ESTIMATORS as ESTIMATORS
from .serving import UserState as UserState

__version__: str
