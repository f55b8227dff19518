"""The gate: budgets, mechanisms, the accountant that every release passes, its ledger and its statement."""

from hushrec.privacy.accountant import Accountant
from hushrec.privacy.accounting import delta_of, epsilon_of, mu_of, mu_of_pure, total_mu
from hushrec.privacy.bounded import Bound, Bounded, counted, jointly, positive, signed, together
from hushrec.privacy.budget import Budget
from hushrec.privacy.ledger import Ledger, LedgerSummary, default_path
from hushrec.privacy.mechanisms import Gaussian, Laplace, Mechanism, RandomizedResponse
from hushrec.privacy.noise import NoiseSource, SystemNoise
from hushrec.privacy.release import Plan, Release
from hushrec.privacy.season import Season, SeasonSummary, Week
from hushrec.privacy.season_accountant import SeasonAccountant
from hushrec.privacy.selection import RepeatAndSelect
from hushrec.privacy.statement import PrivacyStatement

__all__ = [
    "Accountant",
    "Bound",
    "Bounded",
    "Budget",
    "Gaussian",
    "Laplace",
    "Ledger",
    "LedgerSummary",
    "Mechanism",
    "NoiseSource",
    "Plan",
    "PrivacyStatement",
    "RandomizedResponse",
    "Release",
    "RepeatAndSelect",
    "Season",
    "SeasonAccountant",
    "SeasonSummary",
    "SystemNoise",
    "Week",
    "counted",
    "default_path",
    "delta_of",
    "epsilon_of",
    "jointly",
    "mu_of",
    "mu_of_pure",
    "positive",
    "signed",
    "together",
    "total_mu",
]
