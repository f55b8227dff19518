from .algorithms import (
    ALS as ALS,
)
from .algorithms import (
    GlobalMean as GlobalMean,
)
from .algorithms import (
    ItemBias as ItemBias,
)
from .algorithms import (
    Popular as Popular,
)
from .algorithms import (
    PrivateALS as PrivateALS,
)
from .algorithms import (
    PrivateEigenRec as PrivateEigenRec,
)
from .algorithms import (
    UserLevelOneBit as UserLevelOneBit,
)
from .billboard import Billboard as Billboard
from .billboard import load as load
from .data import (
    Domain as Domain,
)
from .data import (
    Ratings as Ratings,
)
from .data import (
    dpals_matrix as dpals_matrix,
)
from .data import (
    jtt18_matrix as jtt18_matrix,
)
from .data import (
    leave_k_out as leave_k_out,
)
from .data import (
    one_bit_matrix as one_bit_matrix,
)
from .data import (
    realistic as realistic,
)
from .data import (
    sample_per_user as sample_per_user,
)
from .data import (
    split_ratings as split_ratings,
)
from .data import (
    strong_generalization as strong_generalization,
)
from .errors import (
    BudgetError as BudgetError,
)
from .errors import (
    HushrecError as HushrecError,
)
from .errors import (
    InputError as InputError,
)
from .errors import (
    LedgerError as LedgerError,
)
from .errors import (
    ModelFileError as ModelFileError,
)
from .estimator import Estimator as Estimator
from .evaluation import (
    Comparison as Comparison,
)
from .evaluation import (
    Estimate as Estimate,
)
from .evaluation import (
    Evaluation as Evaluation,
)
from .evaluation import (
    compare as compare,
)
from .evaluation import (
    evaluate as evaluate,
)
from .evaluation.tuning import tune as tune
from .gate import Gate as Gate
from .papers.dpals import DPALS as DPALS
from .papers.frank_wolfe import (
    CorrectiveFrankWolfe as CorrectiveFrankWolfe,
)
from .papers.frank_wolfe import (
    FrankWolfe as FrankWolfe,
)
from .papers.frank_wolfe import (
    PrivateFrankWolfe as PrivateFrankWolfe,
)
from .papers.frank_wolfe import (
    PrivateProjectedGradient as PrivateProjectedGradient,
)
from .papers.frank_wolfe import (
    PrivateSVD as PrivateSVD,
)
from .papers.frank_wolfe import (
    ProjectedGradient as ProjectedGradient,
)
from .papers.mcsherry_mironov import CleansedSVD as CleansedSVD
from .papers.one_bit import OneBitCompletion as OneBitCompletion
from .privacy import (
    Accountant as Accountant,
)
from .privacy import (
    Bound as Bound,
)
from .privacy import (
    Bounded as Bounded,
)
from .privacy import (
    Budget as Budget,
)
from .privacy import (
    Gaussian as Gaussian,
)
from .privacy import (
    Laplace as Laplace,
)
from .privacy import (
    Ledger as Ledger,
)
from .privacy import (
    LedgerSummary as LedgerSummary,
)
from .privacy import (
    Mechanism as Mechanism,
)
from .privacy import (
    NoiseSource as NoiseSource,
)
from .privacy import (
    Plan as Plan,
)
from .privacy import (
    PrivacyStatement as PrivacyStatement,
)
from .privacy import (
    RandomizedResponse as RandomizedResponse,
)
from .privacy import (
    Release as Release,
)
from .privacy import (
    RepeatAndSelect as RepeatAndSelect,
)
from .privacy import (
    SystemNoise as SystemNoise,
)
from .privacy import (
    counted as counted,
)
from .privacy import (
    default_path as default_path,
)
from .privacy import (
    delta_of as delta_of,
)
from .privacy import (
    epsilon_of as epsilon_of,
)
from .privacy import (
    jointly as jointly,
)
from .privacy import (
    mu_of as mu_of,
)
from .privacy import (
    mu_of_pure as mu_of_pure,
)
from .privacy import (
    positive as positive,
)
from .privacy import (
    signed as signed,
)
from .privacy import (
    together as together,
)
from .privacy import (
    total_mu as total_mu,
)
from .registry import ESTIMATORS as ESTIMATORS
from .serving import UserState as UserState

__version__: str
