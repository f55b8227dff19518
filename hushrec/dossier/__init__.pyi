from .card import model_card as model_card
from .certifying import certify as certify
from .checking import Check as Check, check as check
from .form import canonical as canonical, facts_of as facts_of
from .ledger_page import overview as overview
from .page import plain as plain, render as render
from .signing import (
    private_key as private_key,
    public_key as public_key,
    sign as sign,
)
