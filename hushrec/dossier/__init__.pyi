from .card import model_card as model_card
from .certifying import certify as certify
from .checking import Check as Check, check as check, envelope_of as envelope_of
from .form import canonical as canonical, facts_of as facts_of
from .ledger_page import overview as overview
from .page import plain as plain, render as render
from .signing import (
    attach as attach,
    public_key as public_key,
    sign as sign,
    to_sign as to_sign,
    unsigned as unsigned,
)
