from .accountant import Accountant as Accountant
from .accounting import (
    delta_of as delta_of,
    epsilon_of as epsilon_of,
    mu_of as mu_of,
    mu_of_pure as mu_of_pure,
    total_mu as total_mu,
)
from .attendance import Attendance as Attendance
from .bounded import (
    Bound as Bound,
    Bounded as Bounded,
    counted as counted,
    jointly as jointly,
    positive as positive,
    signed as signed,
    together as together,
)
from .budget import Budget as Budget
from .ledger import Ledger as Ledger, default_path as default_path
from .ledger_records import LedgerSummary as LedgerSummary
from .mechanisms import (
    Gaussian as Gaussian,
    Laplace as Laplace,
    Mechanism as Mechanism,
    RandomizedResponse as RandomizedResponse,
)
from .noise import NoiseSource as NoiseSource, SystemNoise as SystemNoise
from .release import Plan as Plan, Release as Release
from .reservation import Reservation as Reservation
from .season import Season as Season, SeasonSummary as SeasonSummary, Week as Week
from .season_accountant import SeasonAccountant as SeasonAccountant
from .selection import RepeatAndSelect as RepeatAndSelect
from .statement import PrivacyStatement as PrivacyStatement
