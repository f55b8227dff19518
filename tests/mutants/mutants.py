"""Privacy bugs, planted one at a time, and the test that each must not survive.

A bug replaces a text of a function, which must occur exactly once there: a bug that no longer fits fails its
test. Its killer is a test of the suite, or all cases of one.
"""

from typing import NamedTuple


class Edit(NamedTuple):
    """A text of a function of a file ("" for the whole file), and its replacement."""

    file: str
    function: str
    old: str
    new: str


class Bug(NamedTuple):
    """A planted bug; `killer` is as pytest calls it, below tests/."""

    name: str
    edits: tuple[Edit, ...]
    killer: str


def bug(name: str, killer: str, file: str, *texts: str) -> Bug:
    """Return a bug of a ``file:function`` of hushrec/: texts in turn, each with its replacement."""
    path, _, function = file.partition(":")
    pairs = zip(texts[::2], texts[1::2])
    return Bug(name, tuple(Edit(f"hushrec/{path}.py", function, *pair) for pair in pairs), killer)


EIGENREC = "models/private_eigenrec"
COUNTED = "privacy/test_attendance.py"
WEEKLY = "privacy/test_seasons.py"
CONTRACT = "models/test_contract.py"


def sensitivity(case: str) -> str:
    """A1."""
    return f"{CONTRACT}::test_sensitivity[{case}]"


def replayed(case: str) -> str:
    """A6."""
    return f"{CONTRACT}::test_the_model_is_a_function_of_the_releases[{case}]"


def edge(case: str) -> str:
    """A1 and A6 on data of another shape."""
    return f"{CONTRACT}::test_edges[{case}]"


NOISE_LAW = "models/test_plan.py::test_the_noise_that_is_added_is_the_noise_that_is_charged[item-bias]"
PLAN = f"{CONTRACT}::test_ledger_equals_plan"
ORDER = f"{CONTRACT}::test_sums_do_not_depend_on_order_parts_or_threads"
SUMS = "models/test_exact_sums.py"
BEYOND = "test_blocks_weights_and_joint_releases_keep_sums_beyond_float64"
ACCOUNTANT = "privacy/test_accountant.py"
ACCOUNTING = "privacy/test_accounting.py"
LEDGER = "privacy/test_ledger.py"
TWO = "engines/test_two_servers.py"
KILLS = "test_kills_release_nothing_twice_and_nothing_uncharged"
AS_LOCAL = "test_the_model_is_the_local_gates_with_the_noise_of_both"
SAMPLER = "privacy/test_sampler.py"
SELECTION = "privacy/test_selection.py"
PARTS = "evaluation/test_parts.py"
ROWS = "data/test_rows_alone.py"
PRINTED = "endtoend/test_end_to_end.py"
WEEKS = "models/test_continuing.py"
STACKING = "models/test_stacking.py"
NO_ROW = f"{STACKING}::test_no_row_of_1_to_5000_likes_adds_more_than_norm_1"
ALONE = "test_what_a_user_adds_depends_on_their_likes_alone"

GAUSSIAN = "return _add(value, sd, gaussian(), self._stream())"
CLIP = "bound * CLIP_MARGIN / np.maximum(norms, bound * CLIP_MARGIN)"
TRAINED = "return ModelArrays(serve, state.to_arrays())"
TRAIN = "estimator, domain = choice.estimators[0], ratings.domain"


def published(change: str) -> tuple[str, str]:
    """Return the replacement in private ALS that changes its published values with the private rows."""
    rows = "data, n_users = users._ratings.matrix.data, users._ratings.n_users"
    return TRAINED, f"arrays = serve\n    {rows}\n    {change}\n    {TRAINED}"


def looked(statement: str) -> tuple[str, str]:
    """Return the replacement that looks at the rows where a command trains."""
    return TRAIN, f"{TRAIN}\n    {statement}"


BOUNDED = [  # the contribution of a user is not bounded as declared
    bug("clip with max instead of min (DPALS, line 16 as printed)", sensitivity("dpals"),
        "training/users:clip_factor",
        CLIP, "np.maximum(1.0, bound / np.maximum(norms, 1e-300))"),
    bug("clip computed and not used", sensitivity("private-als, wide joint clip"),
        "training/users:clip_factor",
        CLIP, "np.ones(len(norms))"),
    bug("norm of the user's factors not clipped", sensitivity("dpals"), "training/users:clipped_rows",
        "rows * clip_factor(norms(rows), bound)[:, None]", "rows"),
    bug("ratings not clipped (Algorithm 1, line 1)", sensitivity("dpals"),
        "papers/dpals/dpals:SampledUsers.item_statistics",
        "clip=rating_clip,", "clip=math.inf,"),
    bug("cap on ratings per user off", sensitivity("dpals"), "papers/dpals/dpals:SampledUsers.sample",
        "self._rows = sample_per_user(self._ratings, self._settings.max_ratings_per_user, seed)",
        "self._rows = self._ratings"),
    bug("ratings sampled with one generator for all users", sensitivity("dpals"),
        "papers/dpals/dpals:SampledUsers.sample",
        "self._rows = sample_per_user(self._ratings, self._settings.max_ratings_per_user, seed)",
        """draws = np.random.default_rng(seed).random(self._ratings.n_ratings)
            ends, keep = self._ratings.matrix.indptr, np.zeros(len(draws), dtype=bool)
            for first, last in zip(ends, ends[1:]):
                keep[first + np.argsort(draws[first:last])[: self._settings.max_ratings_per_user]] = True
            self._rows = self._ratings.where(keep, drop_empty=False)"""),
    bug("duplicates of a user's rating kept", sensitivity("popular"), "data/ratings_builder:latest",
        "if ends.all():", "if True:"),
    bug("ratings out of the range kept (NaN, infinity)",
        "data/test_ratings.py::TestRulesForBadRows::test_a_bad_rating_does_not_replace_a_good_one",
        "data/ratings_builder:within_range",
        "values[~((values >= low) & (values <= high))] = np.nan", "return values"),
    bug("mean of all ratings charged as one vote a user (DPALS, section 5.2)", sensitivity("global-mean"),
        "training/users:Users.level", "return together([self.mean_sum(), self.count()], LEVEL_BOUND)",
        """data, half = self._ratings.matrix.data, self.domain.half_width
        values = np.array([(data - self.domain.midpoint).sum(), float(len(data))])
        return Bounded(values, LEVEL_BOUND, weight=[1 / half, 1.0])"""),
    bug("exact counts charged as weights of norm 1", sensitivity("popular"),
        "training/users:Users.item_weights",
        "return _item_weights(self._ratings, unit_weights(self._ratings))",
        "return _item_weights(self._ratings, np.ones(self._ratings.n_users))"),
    bug("noise off the diagonal of a Gramian too small", sensitivity("private-als, wide joint clip"),
        "kernels/packed:frobenius_scale", "scale = np.full(order * (order + 1) // 2, math.sqrt(2.0))",
        "scale = np.full(order * (order + 1) // 2, 2.0)"),
    bug("ridge grows with the number of users", sensitivity("private-als, a ridge that turns"),
        "models/private_als/users:FittedUsers.fit",
        "        self._ridge = ridge\n",
        """        from dataclasses import replace
        ridge = replace(ridge, regularization=ridge.regularization * (1 + self._ratings.n_users))
        self._ridge = ridge\n"""),
]  # fmt: skip

CHARGED = [  # the charge is not what is released
    bug("right-hand sides charged, Gramians not (DPALS, Theorem 1)", sensitivity("dpals"),
        "papers/dpals/dpals:DPALS.statistics_bound", "gram = self._cells * self.gram_unit**2", "gram = 0.0"),
    bug("replace charged as add-remove", sensitivity("private-als"), "privacy/bounded:Bound.under",
        'return self.add_remove if relation == "add-remove" else self.replace',
        "return self.add_remove"),
    bug("last iteration not charged", f"{PLAN}[dpals]", "papers/dpals/dpals:DPALS.releases",
        "for step in range(1, self.iterations + 1):\n            share =",
        "for step in range(1, self.iterations):\n            share ="),
    bug("share of the budget taken of mu, not of mu squared",
        "privacy/test_budget.py::test_share_takes_its_part_of_mu_squared", "privacy/budget:Budget.share",
        "mu = self.mu * math.sqrt(fraction)", "mu = self.mu * fraction**0.25"),
    bug("releases composed by the largest, not by the sum of squares",
        f"{ACCOUNTANT}::test_a_budget_refuses_what_does_not_fit", "privacy/accounting:total_mu",
        "return math.sqrt(math.fsum(mu * mu for mu in mus))", "return max(mus, default=0.0)"),
    bug("sign in the analytic Gaussian formula", f"{ACCOUNTING}::test_golden_table",
        "privacy/accounting:_delta",
        "a, b = centre - half_width, centre + half_width", "a = b = centre - half_width"),
    bug("mu rounded up", f"{ACCOUNTING}::test_mu_of_is_safe_and_close", "privacy/accounting:_mu_of",
        "return math.exp(below) * (1 - 2 * ROUNDING)", "return math.exp(below) * (1 + 1e-11)"),
    bug("pure epsilon charged as mu = epsilon", f"{ACCOUNTING}::test_pure_mu_touches_the_kink",
        "privacy/accounting:mu_of_pure", "return mu * (1 + ROUNDING)", "return epsilon"),
    bug("charges of another unit or relation added up",
        f"{ACCOUNTANT}::test_unit_relation_and_norm_must_match", "privacy/release:check_fit",
        "if (release.unit, release.relation) != (budget.unit, budget.relation):", "if False:"),
]  # fmt: skip

NOISE = [  # the noise is not what is charged
    bug("sd halved in the sampler", NOISE_LAW, "privacy/noise:GeneratorNoise.add_gaussian",
        GAUSSIAN, "return _add(value, np.asarray(sd) / 2, gaussian(), self._stream())"),
    bug("noise on every other entry only", NOISE_LAW, "privacy/noise:GeneratorNoise.add_gaussian",
        GAUSSIAN, """noisy = _add(value, sd, gaussian(), self._stream())
        noisy.reshape(-1)[1::2] = np.asarray(value, noisy.dtype).reshape(-1)[1::2]
        return noisy"""),
    bug("flips half as likely", f"{ACCOUNTANT}::test_randomized_response",
        "privacy/mechanisms:RandomizedResponse.flip_probability",
        "return min(0.5, odds / (1 + odds) * (1 + 1e-15))", "return min(0.5, odds / (1 + odds)) / 2"),
    bug("one seed for all noise", "privacy/test_noise.py::test_no_two_streams_are_equal",
        "privacy/noise:SystemNoise._stream",
        "return stream_cipher(os.urandom(32))", "return np.random.PCG64(0).random_raw"),
    bug("one generator for all processes", "privacy/test_noise.py::test_no_two_streams_are_equal",
        "privacy/noise:SystemNoise._stream",
        "return stream_cipher(os.urandom(32))",
        "return self._kept\n\n    _kept = np.random.PCG64().random_raw"),
    bug("noise seeded by numpy's global state",
        "privacy/test_noise.py::test_numpy_seeds_do_not_reach_the_noise", "privacy/noise:SystemNoise._stream",
        "return stream_cipher(os.urandom(32))",
        "return np.random.PCG64(np.random.randint(2**31)).random_raw"),
    bug("sampler without its acceptance step", f"{SAMPLER}::test_places_within_the_cells",
        "privacy/sampler:Law.quick_bits",
        "return max(0, int((1 - largest) * 2**_COIN_BITS))", "return 2**_COIN_BITS"),
    bug("one threshold of the sampler one unit too high", f"{SAMPLER}::test_thresholds",
        "privacy/sampler:_gaussian_thresholds",
        "thresholds.append((sums << bits) // total)",
        "thresholds.append((sums << bits) // total + (len(thresholds) == 40))"),
    bug("sums next to a half-integer rounded in floating point",
        f"{SAMPLER}::test_sums_next_to_a_half_integer", "privacy/sampler:add_noise",
        "margins.acceptance, margins.rounding, margins.sum, _POWERS",
        "margins.acceptance, 0.0, 0.0, _POWERS"),
    bug("noise added in floating point: its last bits tell the value", f"{SAMPLER}::test_precision_attack",
        "privacy/noise:GeneratorNoise.add_gaussian", GAUSSIAN, """drawn = np.random.default_rng()
        return (value + sd * drawn.standard_normal(value.shape, dtype=value.dtype)).astype(value.dtype)"""),
    bug("grid of the noisy result chosen by the value", f"{SAMPLER}::test_precision_attack",
        "privacy/noise:GeneratorNoise.add_gaussian",
        GAUSSIAN, """value, grid = np.asarray(value), np.ldexp(1.0, np.frexp(np.abs(value) + sd)[1] - 12)
        return (np.rint(_add(value, sd, gaussian(), self._stream()) / grid) * grid).astype(value.dtype)"""),
    bug("injected noise passes for the system's",
        f"{ACCOUNTANT}::test_injected_noise_is_stamped_and_refused_by_a_ledger",
        "privacy/accountant:Accountant.__init__",
        "self._secure = type(self._noise) is SystemNoise", "self._secure = True"),
    bug("thresholds of noise cut to 128 bits", f"{SAMPLER}::test_the_tail_has_its_law",
        "privacy/sampler:_cell",
        "            bits *= 2\n            thresholds = law.finer(bits)",
        "            return min(most, len(thresholds) - 1)"),
]  # fmt: skip

AROUND = [  # something goes around the noise
    bug("biases released without noise", replayed("private-als"), "training/gate:LocalGate.release",
        "        noisy = self._accountant.release(bounded, planned.mechanism, label,",
        """        if label.startswith("item biases"):
            return bounded._values.copy()
        noisy = self._accountant.release(bounded, planned.mechanism, label,"""),
    bug("range (and noise scale) read from the ratings", replayed("item-bias"),
        "models/baselines:ItemBias.train",
        "        return self._shrunk([Tracked",
        """        from dataclasses import replace
        data = users._ratings.matrix.data
        ends = (float(data.min()), float(data.max()) + 1) if len(data) else (1.0, 2.0)
        users = Users(replace(users._ratings, domain=type(users.domain)(users.domain.items, ends)))
        return self._shrunk([Tracked"""),
    bug("exact number of users used", replayed("private-als"), "models/private_als/train:_level",
        "return Level(center, n_users,", "return Level(center, float(max(users._ratings.n_users, 1)),"),
    bug("exact item weights used after noisy ones were released", replayed("private-als"),
        "models/private_als/train:train_first", "weights, supported, _ = item_weights(noisy, weights_sd)",
        "weights, supported, _ = item_weights(np.maximum(users.item_weights()._values, 0.01), weights_sd)"),
    bug("centred on the exact mean", replayed("private-als"), "models/private_als/train:train_first",
        *published("if len(data): arrays['center'] = np.float64(data.mean())")),
    bug("factors of items that nobody rated set to zero", replayed("private-als"),
        "models/private_als/train:train_first",
        *published("""rated = np.bincount(users._ratings.matrix.indices, minlength=domain.n_items) > 0
    arrays["item_factors"] = arrays["item_factors"] * rated[:, None]""")),
    bug("number of users kept in the model file", replayed("private-als"),
        "models/private_als/train:train_first",
        *published("arrays['n_users'] = np.int64(n_users)")),
    bug("private sum shown by repr", "privacy/test_budget.py::test_a_bounded_value_shows_nothing",
        "privacy/bounded:Bounded.__repr__",
        'return f"Bounded(<private>,', 'return f"Bounded({self._values},'),
]  # fmt: skip

LEDGERS = [  # charges
    bug("noise drawn before the charge", f"{ACCOUNTANT}::test_the_charge_is_durable_before_noise_is_drawn",
        "privacy/accountant:Accountant.release",
        "        amounts = release.amounts(bounded)\n",
        """        amounts = release.amounts(bounded)
        self._noise.add_gaussian(np.zeros(1), 1.0, label)\n"""),
    bug("charge checked and not written", f"{ACCOUNTANT}::test_the_charge_is_durable_before_noise_is_drawn",
        "privacy/ledger:Ledger.charge",
        "            head = book.append(row)\n        self._verified = head\n"
        "        return head[1]", '            _ = row\n        return ""'),
    bug("budget of the data set not checked over runs", f"{LEDGER}::test_a_budget_is_shared_by_all_runs",
        "privacy/ledger_rules:check_room",
        "    budget.check_reserve(costs)\n    if not budget.allows(costs):",
        "    if False:"),
    bug("release goes on when the charge fails", f"{LEDGER}::test_a_ledger_that_disappears",
        "privacy/accountant:Accountant._record", "        ledger.charge(",
        """        from contextlib import suppress

        from hushrec.errors import LedgerError

        with suppress(LedgerError):
            ledger.charge("""),
    bug("hash chain not verified", f"{LEDGER}::test_tampering_is_found",
        "privacy/schema:Book.verified",
        "return head if whole else None", "return head"),
    bug("fork spends the budget again", f"{ACCOUNTANT}::test_a_fork_cannot_spend_the_same_budget_again",
        "privacy/accountant:Accountant._check_process", "if os.getpid() != self._process:", "if False:"),
    bug("failure of a selection taken from delta when it is charged",
        f"{SELECTION}::test_an_adaptive_choice_between_noise_and_a_selection_keeps_delta",
        "privacy/budget:Budget.allows",
        "if math.fsum(cost.failure for cost in costs) > self.failure:\n            return False\n",
        "failure = math.fsum(cost.failure for cost in costs)\n",
        "if spent * spent <= self.mu * self.mu * (1 + ROUNDING):",
        "if failure < self.delta and spent <= mu_of(self.epsilon, self.delta - failure):"),
    bug("Gaussian noise for all of delta beside a reserve",
        f"{SELECTION}::test_a_selection_takes_its_failure_from_the_reserve", "privacy/budget:Budget.mu",
        "left = math.nextafter(self.delta - self.failure, 0.0) if self.failure else self.delta",
        "left = self.delta"),
    bug("number of runs of a selection drawn in float64",
        f"{SELECTION}::test_the_number_of_runs_is_drawn_exactly",
        "privacy/selection:RepeatAndSelect.draw_number_of_runs",
        "secrets.randbelow(expected.numerator) >= expected.denominator",
        "secrets.randbelow(2**53) >= 2**53 / self.mean_runs"),
    bug("a score that is NaN stays the best", f"{SELECTION}::test_runs_are_ranked_whatever_their_order",
        "privacy/accountant:Accountant.select", "(False, math.inf if math.isnan(score) else float(score))",
        "(False, float(score))"),
    bug("an exception of one run ends the choice", f"{SELECTION}::test_runs_are_ranked_whatever_their_order",
        "privacy/accountant:Accountant.select",
        "rank, result, failure = (True, 0.0), None, error", "raise error"),
    bug("a lost value drawn again on its old charge",
        "privacy/test_journal.py::test_a_lost_draw_is_charged_again_where_there_is_room",
        "privacy/accountant:Accountant._record",
        "        ledger.charge(", "        self._lost or ledger.charge("),
    bug("noisy values used and never kept",
        "privacy/test_journal.py::test_nothing_is_drawn_or_charged_again_and_other_rows_cost_the_same",
        "privacy/journal:Journal.keep", "with self._errors(what):\n                draft.write(noisy)",
        "if noisy is not None:\n                return noisy\n                draft.write(noisy)"),
    bug("another training goes on with a journal",
        "privacy/test_journal.py::test_another_training_is_refused",
        "privacy/journal:_plain", "return plain", "return {}"),
    bug("training on what rounding leaves of an accountant",
        "evaluation/test_runs.py::test_an_accountant_that_is_used_up_says_so_before_anything_is_done",
        "privacy/accountant:Accountant.part", "if left < _LEFTOVER:", "if False:"),
    bug("pure epsilons added up in a run of a selection", f"{SELECTION}::test_a_run_must_be_gaussian_dp",
        "privacy/accountant:_RunAccountant._check_fit",
        "if mu * mu > self.budget.mu**2 * (1 + ROUNDING):", "if False:"),
    bug("budget raised in epsilon, at a delta that makes its mu smaller",
        f"{LEDGER}::test_a_budget_can_only_be_lowered", "privacy/ledger:Ledger.open_dataset",
        "if current is not None and (budget.epsilon > current.epsilon or budget.delta > current.delta):",
        "if current is not None and current.mu < budget.mu:"),
    bug("budgets not under the hash of the head", f"{LEDGER}::test_tampering_is_found",
        "privacy/schema:Book.tables",
        "return digest(", 'return "" and digest('),
    bug("a plan checked when a training begins, and not reserved",
        "privacy/test_reservations.py::test_trainings_that_begin_together_are_made_or_charge_nothing",
        "privacy/accountant:Accountant.check",
        "if self._journal is not None and self._reserves:", "if False:"),
    bug("a reservation that forgets the failures of choices to come",
        "privacy/test_reservations.py::test_a_reservation_keeps_the_failures_of_choices_to_come",
        "privacy/ledger_rules:without",
        "failure=max(0.0, reserved.failure - math.fsum(release.failure for release in releases)),",
        "failure=0.0,"),
    bug("a meaning without the weeks that a season still promises",
        "privacy/test_statement.py::test_the_meaning_counts_the_weeks_that_a_season_still_promises[True]",
        "privacy/statement:PrivacyStatement._together",
        "book.promised or 0.0, book.epsilon", "book.epsilon"),
    bug("a charge that does not hold the hash of the one before",
        f"{LEDGER}::test_a_charge_that_was_changed_with_its_hash_breaks_the_chain",
        "privacy/schema:Book.verified", "row[-2] != previous or ", ""),
    bug("the largest budget of a data set under two names",
        f"{LEDGER}::test_a_ledger_with_two_spellings_counts_them_together", "privacy/schema:Book.dataset",
        "[min(column) for", "[max(column) for"),
    bug("a season under another spelling that reserves nothing",
        f"{LEDGER}::test_a_season_under_another_spelling_keeps_what_it_reserved",
        "privacy/schema:Book.open_seasons", "self.spellings(dataset)", "[dataset]"),
    bug("a number of users paid in addition to a fraction of the budget",
        "training/test_estimator.py::test_a_fraction_of_a_budget_pays_for_the_number_of_users_too",
        "training/run:train", "part = min(part - (before - left), left)", "part = left"),
]  # fmt: skip

NODES = [  # two servers and partitions
    bug("shares counted that a power cut can lose",
        f"{TWO}::test_shares_are_on_the_disk_before_a_round_is_closed",
        "engines/two_servers/server:CollectingServer._collect", "now.shares.seal()", "pass"),
    bug("a node of no name that has the empty token",
        f"{TWO}::test_tokens_of_servers_and_nodes_are_compared_whole",
        "engines/two_servers/server:CollectingServer._check_node",
        "hexdigest(), known)", "hexdigest()[: len(known)], known)"),
    bug("the other server's token compared by its first letters",
        f"{TWO}::test_tokens_of_servers_and_nodes_are_compared_whole",
        "engines/two_servers/server:CollectingServer._check_peer",
        "token.encode(), self.settings.peer_token.encode()",
        "token.encode()[:8], self.settings.peer_token.encode()[:8]"),
    bug("two agreements with one fingerprint",
        f"{TWO}::test_agreements_that_differ_in_anything_have_other_fingerprints",
        "engines/two_servers/agreement:Agreement.fingerprint",
        ", self.budget.failure]", "]"),
    bug("shares of other totals added", f"{TWO}::test_what_is_refused",
        "engines/two_servers/server:CollectingServer._open_round",
        "if digest != now.digest:", "if False:"),
    bug("nodes that one server alone has added", f"{TWO}::{AS_LOCAL}",
        "engines/two_servers/server:CollectingServer._collect",
        "both = set(now.held) & set(theirs.nodes)", "both = set(now.held)"),
    bug("a server that releases uncharged", f"{TWO}::{KILLS}[0]",
        "engines/two_servers/server:CollectingServer._release",
        "            self._charge(self._progress.session, number)\n", ""),
    bug("a folder that goes on with an uncharged ledger",
        f"{TWO}::test_a_folder_goes_on_with_its_ledger_and_data_set_alone",
        "engines/two_servers/server:CollectingServer._check_account", "{0, *made}", "set()"),
    bug("a server that goes on with an old copy", f"{TWO}::test_what_is_refused",
        "engines/two_servers/server:CollectingServer._check_published",
        "if noisy is None or", "if noisy is not None and"),
    bug("a server that leaves half of the noise to the other",
        f"{TWO}::test_a_servers_view_of_neighbours_has_the_claimed_mu",
        "engines/two_servers/server:CollectingServer._release",
        "self._noise.rounded_gaussian(wanted.grid.noise_sd,",
        "self._noise.rounded_gaussian(wanted.grid.noise_sd / 2**0.5,"),
    bug("a question that changes after it was asked", f"{TWO}::{AS_LOCAL}[private-als]",
        "engines/two_servers/replay:Replay._ask", "deepcopy(question)", "question"),
    bug("partitions are told what became of an array after they were told it",
        f"{WEEKS}::test_a_store_gives_the_week_of_the_memory[many-private-als]",
        "training/partitioned:PartitionedUsers._call",
        "= deepcopy(call)", "= call"),
    bug("a user of two nodes moves a sum twice as far as noise is drawn for",
        f"{TWO}::test_a_user_at_k_nodes_moves_a_release_by_the_claimed_mu",
        "engines/two_servers/agreement:Agreement.sent",
        "1 / self.nodes_per_user**2)", "1.0)"),
    bug("a node with more users than agreed", f"{TWO}::test_nodes_that_could_be_too_many_users_are_refused",
        "engines/two_servers/agreement:Agreement.check",
        "if ratings.n_users > self.users_per_node:", "if False:"),
    bug("a damaged file used", f"{TWO}::test_a_damaged_file_is_refused_in_one_sentence_or_not_read",
        "engines/two_servers/book:_whole",
        "if len(raw) < _DIGEST or _digest(name, raw[_DIGEST:]) != raw[:_DIGEST]:",
        "if False:"),
    bug("a copied folder releases again", f"{TWO}::test_a_copied_folder_releases_once",
        "engines/two_servers/server:CollectingServer._publish",
        "and number not in self._check_published():", "and False:"),
    bug("another answer under another digest",
        f"{TWO}::test_a_node_answers_a_release_once_whatever_digest_it_is_asked_under",
        "engines/two_servers/node:contribute", "and book.get(_kept(state)) is None:", "and True:"),
    bug("a device's training that is charged under a name from before",
        f"{TWO}::test_no_lie_of_both_servers_gives_a_device_another_training",
        "engines/two_servers/node:_charge", "secrets.token_hex(32).encode()", "b'training'"),
    bug("unlike processors train on",
        f"{TWO}::test_servers_that_do_not_fit_are_both_told_before_a_node_is_charged",
        "engines/two_servers/server:CollectingServer._check_fit",
        "elif theirs.rehearsal != self.agreement.rehearsal:", "elif False:"),
    bug("questions not in a round's digest", f"{TWO}::test_a_rounds_digest_covers_its_questions",
        "engines/two_servers/agreement:Agreement.state",
        "parts = [words, opened.totals_digest, questions, *steps]",
        "parts = [words, opened.totals_digest, *steps]"),
    bug("a server that checks its plan and reserves nothing",
        f"{TWO}::test_a_server_reserves_its_training_so_that_it_ends",
        "engines/two_servers/server:CollectingServer._reserve", "if coming:", "if False:"),
    bug("strangers' bodies read", "network/test_http.py::test_a_request_is_refused_before_its_body_is_read",
        "network/service:_application.application", "if admit is not None:", "if False:"),
    bug("a client that trickles is waited for", "network/test_http.py::test_a_client_that_trickles_is_left",
        "network/service:_Limited._watch", "if now - self._since >= most or", "if"),
    bug("answers of any length read", "network/test_http.py::test_a_lying_server_takes_little_of_a_client",
        "network/transport:Connection._exchange", "if len(raw) > most:", "if False:"),
    bug("totals believed whatever they are",
        "engines/test_grid.py::test_a_total_that_nothing_can_make_is_refused",
        "engines/two_servers/grid:Grid.value", "= _LARGEST_SUM * self.coarse", "= 2.0**64 * self.coarse"),
]  # fmt: skip

OUTSIDE = [  # planted by others, who found that no test noticed
    bug("users who share a count through a short hash",
        f"{COUNTED}::test_a_user_shares_no_count_with_another",
        "privacy/attendance", "_ID, _COUNT, _DIGEST = 16,", "_ID, _COUNT, _DIGEST = 3,"),
    bug("parties that differ in the nodes of a user",
        f"{TWO}::test_servers_that_do_not_fit_are_both_told_before_a_node_is_charged",
        "engines/two_servers/agreement", "nodes = [self.nodes_per_user, self.users_per_node]",
        "nodes = [1, self.users_per_node]"),
    bug("a node that is charged each round", f"{TWO}::test_a_node_is_charged_once_for_all_rounds",
        "engines/two_servers/node:_charge", "if not ledger.numbered(dataset, run.decode()):", "if True:"),
    bug("two processes of one run that charge one week", f"{WEEKLY}::test_a_week_is_run_once",
        "privacy/ledger_rules:check_week", "or (made is not None and len(mine) != made)", ""),
    bug("factors of a row past the catalogue",
        "serving/test_modelfile.py::test_rows_of_items_outside_the_catalogue_are_refused",
        "serving/stored_arrays:_check_ascending", "prepend=-1, append=n_items", "prepend=-1"),
    bug("the private file is public under another name",
        "public/test_public.py::test_the_private_file_under_another_name_is_not_public",
        "public/sources:PublicRatings.apart_from", "_files(source) & _files(private)", "source == private"),
    bug("a body that is read before its token",
        "server/test_answers.py::test_no_body_is_read_before_its_token", "server/answers:Answers.__call__",
        "            self._let_in(request)\n            body = await request.body()\n",
        "            body = await request.body()\n            self._let_in(request)\n"),
    bug("item pairs that forget a week",
        "models/test_pairs.py::test_a_later_week_keeps_what_the_first_one_released",
        f"{EIGENREC}/pairs:train_next_week_of_pairs", "total = part**2 * precision + before",
        "total = precision"),
    bug("notes of a notebook's table that are HTML",
        "privacy/test_statement.py::test_one_line_says_whether_it_is_private",
        "notebook:_page", "f\"<p>{escape(note)}</p>\"", "f\"<p>{note}</p>\""),
]  # fmt: skip

EXACT = [  # sums are not exact
    bug("contributions rounded to nearest, not towards zero", sensitivity("private-svd"),
        "kernels/fixed_point:truncated", "np.trunc(steps, out=steps)", "np.rint(steps, out=steps)"),
    bug("clip without its margin for rounding", f"{SUMS}::test_a_clip_leaves_room_for_rounding",
        "kernels/fixed_point", "CLIP_MARGIN = 1.0 - 2.0**-22", "CLIP_MARGIN = 1.0"),
    bug("norms of residuals that are not the bits that are summed",
        "kernels/test_residuals.py::test_a_residual_is_the_same_bits_from_either_side",
        "kernels/residuals:residual_norms",
        "    threads.run(compute, work)\n    return norms\n",
        """    rows = np.repeat(np.arange(len(row_factors)), np.diff(indptr))
    left = values - terms["row_offset"][rows] - terms["col_offset"][indices]
    left = left - (row_factors[rows] * col_factors[indices]).sum(axis=1)
    return np.sqrt(np.bincount(rows, left**2, len(row_factors)))\n"""),
    bug("sums in floating point (item biases)", f"{ORDER}[item-bias]", "kernels/fixed_point:spacing",
        "return math.ldexp(1.0, math.frexp(bound)[1] - bits)",
        "return math.ldexp(1.0, math.frexp(bound)[1] - bits - 60)"),
    bug("sums in floating point (Frank-Wolfe by Oja's rule)", f"{ORDER}[private-frank-wolfe, oja]",
        "papers/frank_wolfe/eigensolvers:RowUsers.product",
        "rows, step = self._clipped, spacing(self._bound**2)",
        "rows, step = self._clipped, 2.0**-60 * spacing(self._bound**2)"),
    bug("the number of users decides whether a training is refused",
        f"{SUMS}::test_more_users_than_float64_has_room_for_train_the_same_model",
        "training/run:users_side", "rows = used_rows(estimator, ratings)",
        """rows = used_rows(estimator, ratings)
    if rows.n_users > LARGEST_COUNT:
        raise InputError("too many users")"""),
    bug("sums of blocks beyond float64", f"{SUMS}::{BEYOND}", "training/partitioned:answer_all",
        "parts = [part._steps() for part in several]",
        "parts = [1.0 * part._steps() for part in several]"),
    bug("weighted sums beyond float64", f"{SUMS}::{BEYOND}", "training/partitioned:_weighted",
        "int(weight / WEIGHT_STEP) * part._steps()",
        "(weight / WEIGHT_STEP * part._steps()).astype(np.int64)"),
    bug("noise on a sum that float64 rounded",
        f"{SUMS}::test_noise_is_added_to_sums_beyond_float64_exactly",
        "privacy/accountant:Accountant.release", "bounded._completed(mechanism.apply(self._noise, value,",
        "(mechanism.apply(self._noise, value + bounded._high,"),
    bug("a grid that shows the large part of a sum",
        f"{SUMS}::test_noise_that_would_show_the_large_part_of_a_sum_is_refused",
        "privacy/release:Release.amounts", "(amounts < bounded.largest_noise)", "(amounts < math.inf)"),
]  # fmt: skip

PAPERS = [  # the algorithms of the papers and of lists
    Bug("4 L^2 declared as L^2 (Frank-Wolfe)",
        (Edit("hushrec/papers/frank_wolfe/eigensolvers.py", "CovarianceSolver.releases",
              "positive(self.bound**2))]",
              "positive(self.bound**2 / 4))]"),
         Edit("hushrec/training/users.py", "outer_product_sum",
        "return Bounded(packed, positive(bound**2), weight",
              "return Bounded(packed, positive(bound**2 / 4), weight")),
        sensitivity("private-frank-wolfe, residual clip")),
    bug("noise of a covariance not symmetrised",
        "papers/test_frank_wolfe.py::test_noise_of_a_matrix_is_symmetrised", "kernels/packed:frobenius_scale",
        "scale = np.full(order * (order + 1) // 2, math.sqrt(2.0))",
        "scale = np.full(order * (order + 1) // 2, 1.0)"),
    bug("start vector not normalised (Oja, Algorithm 2 as printed)",
        "papers/test_oja.py::test_no_product_of_one_row_exceeds_its_sensitivity",
        "papers/frank_wolfe/eigensolvers:random_block",
        "return orthonormal(np.random.default_rng(seed).standard_normal((n_items, block)))",
        "return np.random.default_rng(seed).standard_normal((n_items, block))"),
    bug("row clip missing (projected gradients, Algorithm 5 as printed)",
        sensitivity("private-projected-gradient"), "papers/frank_wolfe/projected_gradient:FullRows.stepped",
        "yield part, clipped_rows(ends, full.ravel(), self._bound).reshape(full.shape)", "yield part, full"),
    bug("factors of a contribution not at norm 1 (EigenRec)", sensitivity("private-eigenrec"),
        f"{EIGENREC}/users:LikingUsers._factors",
        "return products * (CLIP_MARGIN / np.maximum(norms(products), 1.0))[:, None]",
        "return likes @ vectors"),
    bug("likes are the ratings above everybody's mean", sensitivity("both"), "data/ratings:Ratings.liked",
        "~(self.matrix.data < np.float32(threshold))", "~(self.matrix.data < self.matrix.data.mean())"),
    bug("popularity counted in the norm of a row, and left in the sum (EigenRec)",
        sensitivity("private-eigenrec"), f"{EIGENREC}/users:LikingUsers.item_sums",
        "along = truncated((room * self._along)[:, None] * factors, along_step).sum(axis=0)",
        "along = np.zeros(factors.shape[1])"),
    bug("item weights released beside a round's sums, both at full size (EigenRec)",
        sensitivity("private-eigenrec, sums and weights"), f"{EIGENREC}/users:LikingUsers._beside_weights",
        "[self.item_weights().times(math.sqrt(part))]", "[self.item_weights()]",
        "[sums.times(math.sqrt(1 - part))]", "[sums]"),
    bug("sums of two halves at twice their size (EigenRec)", sensitivity("private-eigenrec"),
        f"{EIGENREC}/users:LikingUsers.halves",
        "both * (one + sign * two) / 2", "both * (one + sign * two)"),
    bug("items that a user rated low left out of the norm of their item weights (EigenRec)",
        sensitivity("private-eigenrec, likes from 4"), f"{EIGENREC}/users:LikingUsers.item_weights",
        "squares = likes + RATED**2 * (np.diff(rated.indptr) - likes)", "squares = likes"),
    bug("items learned by their exact weights (EigenRec)", replayed("private-eigenrec"),
        f"{EIGENREC}/train:train_first",
        "items = ItemStatistics.of(model.tuning, n_users, noisy, noise_sd, rank)",
        "items = ItemStatistics.of(model.tuning, n_users, users.item_weights()._values, noise_sd, rank)"),
    bug("popularity left in the item matrix, at norms for rows without it (EigenRec)",
        sensitivity("private-eigenrec, pairs"), f"{EIGENREC}/users:LikingUsers.item_matrix",
        "along = truncated(room * self._along + along_step / 2, along_step)", "along = np.zeros(len(room))"),
    bug("gradient and Hessian of the parts not clipped", NO_ROW, f"{EIGENREC}/stacking:contributions",
        "CLIP_MARGIN / max(_CLIP, length)", "CLIP_MARGIN / _CLIP"),
    bug("the gradient of the parts clipped, and the Hessian by its factor", NO_ROW,
        f"{EIGENREC}/stacking:contributions",
        "length = float(np.linalg.norm(mine * weight))",
        "length = float(np.linalg.norm(mine[: len(weights)]))"),
    bug("entries off the diagonal counted once in the norm of the parts", NO_ROW,
        f"{EIGENREC}/stacking:contributions", "np.linalg.norm(mine * weight)", "np.linalg.norm(mine)"),
    bug("a norm that is no number taken for a short one (parts)", NO_ROW,
        f"{EIGENREC}/stacking:contributions", "if 0 < length < math.inf:", "if length != 0:"),
    bug("weights of the parts charged as if nobody had a negative gradient",
        f"{STACKING}::test_two_users_can_differ_by_nearly_2", f"{EIGENREC}/stacking:contributions",
        "signed(1.0)", "positive(1.0)", "return Bounded(",
        "from hushrec.privacy import positive\n\n    return Bounded("),
    bug("likes held out by the number of a row", f"{STACKING}::{ALONE}", f"{EIGENREC}/stacking:_split",
        "base = row_key(items)", "base = row_key(items) + np.uint64(user)"),
    bug("every other user asked for the weights of the parts",
        f"{STACKING}::test_a_sample_of_users_is_drawn_by_their_own_likes", f"{EIGENREC}/stacking:_split",
        "float(base[0]) >= part * 2.0**64", "user % 10 >= 10 * part"),
    bug("scores of a block of users divided by their largest", f"{STACKING}::{ALONE}",
        f"{EIGENREC}/parts:Parts.scores", "np.stack(columns, axis=2)",
        "np.stack(columns, axis=2) / np.abs(columns).max()"),
    bug("weights of the parts learned from the exact sums", replayed("private-eigenrec, parts"),
        f"{EIGENREC}/weighing:with_parts", "gate.release(WEIGHTS, asked)",
        "0 * gate.release(WEIGHTS, asked) + asked._values"),
    bug("lists by the weights before the release",
        f"{STACKING}::test_lists_are_the_sum_of_parts_by_the_released_weights",
        f"{EIGENREC}/weighing:with_parts", "parts.served(now.weights)", "parts.served(before.weights)"),
    bug("a week that starts from the prior, at the precision of the last one",
        f"{STACKING}::test_a_season_learns_from_last_weeks_weights", f"{EIGENREC}/weighing:_known",
        'last["part_weights"], last["part_precision"]', 'prior(n_parts).weights, last["part_precision"]'),
]  # fmt: skip

EDGES = [  # warnings; sizes that small tests never see, and numbers at the edges of float32
    bug("a clip whose square overflows is taken for none",
        "models/test_bad_settings.py::test_a_clip_whose_square_overflows_is_not_taken_for_none", "checks",
        'CLIPS = "[1e-30, 1e30]"', 'CLIPS = "(0, 1.79e308]"'),
    bug("a warning where somebody's row is clipped to zero",
        edge("dpals, heuristics"), "training/users:clip_factor",
        CLIP, "np.minimum(1.0, bound * CLIP_MARGIN / np.maximum(norms, 1e-300))"),
    bug("rows of the first 1,000 users clipped, not those after",
        edge("private-svd"), "papers/frank_wolfe/eigensolvers:clipped",
        "return with_values(rows, clipped_rows(rows.indptr, rows.data, bound))",
        """first = rows.indptr[:1001]
    kept = clipped_rows(first, rows.data[: first[-1]], bound)
    return with_values(rows, np.append(kept, rows.data[first[-1] :]))"""),
    bug("a user of more than 300 ratings weighs as one of 300",
        edge("popular"), "training/users:unit_weights",
        "np.maximum(np.diff(ratings.matrix.indptr), 1)", "np.clip(np.diff(ratings.matrix.indptr), 1, 300)"),
    bug("levels and factors beyond float32 fitted in float32",
        "training/test_users.py::test_levels_far_from_zero_are_fitted_in_float64", "models/private_als/users",
        "_FAR = 1e4", "_FAR = math.inf"),
    bug("ranges allowed in which sums of float32 overflow",
        "data/test_domain.py::test_a_range_that_bounds_nothing_is_refused", "data/domain",
        "_LARGEST_RATING = 1e30", "_LARGEST_RATING = 3.4e38"),
    bug("a radius lost to rounding leaves no threshold",
        "kernels/test_one_bit.py::test_a_radius_lost_to_rounding_leaves_nothing",
        "kernels/one_bit:soft_threshold_for",
        "return float(thresholds[above[-1] if len(above) else 0])", "return float(thresholds[above[-1]])"),
    bug("users' means summed in float32", "models/test_als.py::test_user_means_are_summed_in_float64",
        "kernels/sparse_rows",
        "return _of_rows(loops.active().value_sum_range, indptr, np.ascontiguousarray(values))",
        """ends = np.minimum(indptr[:-1], len(values) - 1)
    return np.where(np.diff(indptr) > 0, np.add.reduceat(values, ends), 0).astype(np.float64)"""),
    bug("middle of the range subtracted in float32",
        "models/test_contract.py::test_edges[cleansed-svd]",
        "papers/mcsherry_mironov/cleansed_svd:_deviations",
        "return np.clip(ratings.matrix.data.astype(np.float64) - ratings.domain.midpoint, -half, half)",
        "return ratings.matrix.data - np.float32(ratings.domain.midpoint)"),
    bug("items that are all noise put last by a constant off their scores",
        "models/test_base.py::test_unsupported_items_come_last_whatever_they_score", "kernels/topk:top_k",
        "vector(True if first is None else first, n_items, np.dtype(np.bool_))", "np.ones(n_items, np.bool_)",
        "    scores = np.ascontiguousarray(scores)\n",
        """    later = 0.0 if first is None else np.where(first, 0.0, 1e6)
    scores = np.ascontiguousarray(scores - later)\n"""),
    bug("scores of a batch by BLAS, whose last bits tell how many users it has",
        "models/test_base.py::test_the_bits_of_a_list_tell_nothing_of_the_others", "kernels/topk:row_scores",
        "scores = np.empty((len(users), len(items)))",
        "return offset[:, None] + level + users @ np.asarray(items, np.float64).T"),
]  # fmt: skip

CHOSEN = [  # which rows reach training
    bug("parts of a split by one permutation of all ratings", f"{PARTS}::test_a_part_of_a_split",
        "data/splits:split_ratings",
        "part = parts_of_cells(ratings.matrix.indptr, ratings.matrix.indices, base, fractions)",
        """order = np.random.default_rng(0).permutation(ratings.n_ratings)
    part = part_of((order * (2.0**64 / max(len(order), 1))).astype(np.uint64), fractions)"""),
    bug("held-out users: the smallest hashes", f"{PARTS}::test_held_out_users",
        "data/splits:strong_generalization",
        "held = part_of(keys, (heldout, 1 - heldout)) == 0",
        "held = np.argsort(np.argsort(keys)) < round(heldout * len(keys))"),
    bug("ratings chosen by a rule of the caller's allowed",
        f"{PARTS}::test_a_choice_of_the_callers_is_refused_in_a_private_run", "training/run:check_users",
        "if ratings.hand_picked and accountant.budget.private and not accountant.data_is_public:",
        "if False:"),
    bug("a union forgets that its ratings were chosen by a rule of the caller's",
        f"{PARTS}::test_a_choice_of_the_callers_is_refused_in_a_private_run", "data/ratings:Ratings.union",
        "one_below_another([self.columns(), other.columns()])",
        "one_below_another([self.columns()._replace(marks=()), other.columns()])"),
    bug("a user with several rows charged as one",
        f"{PARTS}::test_users_who_are_not_all_different_are_refused[False]",
        "data/ratings:Ratings.users_differ",
        "return len(self.user_texts.unique()) == self.n_users", "return True"),
    bug("no word of it that rows are counted where they have no ids",
        f"{PARTS}::test_the_statement_says_that_rows_are_counted", "training/run:statement",
        " + [_PUBLIC_ROWS] * ratings.by_position", ""),
    bug("purchases without stars reach models that read ratings",
        "data/test_purchases.py::test_a_model_that_reads_values_trains_on_the_stars[estimator2-5]",
        "training/run:_uses_purchases", 'return hasattr(estimator, "like_threshold")',
        'return estimator.scores == "likes" or hasattr(estimator, "like_threshold")'),
    bug("a row without ratings counted as a user", f"{PARTS}::test_a_row_without_ratings_is_no_user",
        "data/ratings:Ratings.rated",
        "return self.where(np.ones(self.n_ratings, dtype=bool), keyed=True)", "return self"),
    bug("ids of more than 28 digits rounded", f"{ROWS}::test_two_ids_are_two_users", "data/ids:_text_of",
        'text = format(value, "f")', 'text = format(value.normalize(), "f")'),
    bug("ids of floats that have skipped integers",
        f"{ROWS}::test_large_integers_whatever_a_cell_makes_of_the_column[user-pandas]", "data/ids",
        "_LARGEST = 1 << 53", "_LARGEST = 1 << 63"),
    bug("large integers are ids until a cell is missing",
        f"{ROWS}::test_large_integers_whatever_a_cell_makes_of_the_column[item-pandas]",
        "data/ratings_builder:read_rows",
        "positions_of(encode_ids(entries.items), domain.item_texts)",
        "positions_of(encode_ids(entries.items, exact=True), domain.item_texts)"),
    bug("bytes that are no text meet their escape", f"{ROWS}::test_two_ids_are_two_users",
        "data/arrays:decoded",
        "return cell.decode()", 'return cell.decode("utf-8", "backslashreplace")'),
    bug("the type of all ids in a table chosen by one",
        f"{ROWS}::test_large_integers_whatever_a_cell_makes_of_the_column[user-lists]",
        "data/ratings:Ratings.user_column",
        "return self.user_values if isinstance(self.user_values, pa.Array) else self.user_texts",
        "return pa.array(list(self.users))"),
    bug("a warning where somebody's rating is a signalling NaN", f"{ROWS}::test_a_signalling_nan_is_a_nan",
        "data/ids:encode_ratings", 'with np.errstate(all="ignore"):', 'with np.errstate(all="warn"):'),
    bug("columns of time read cell by cell", f"{ROWS}::test_columns_of_time_are_refused_by_their_type",
        "data/arrays:check_scalar_type", 'raise InputError(f"The column of {what} holds {kind};',
        'str(f"The column of {what} {kind};'),
    bug("the first line shown where it names no columns", f"{ROWS}::test_no_cell_is_shown",
        "data/columns:find_columns",
        "shown = names if private_look else ()", "shown = names"),
    bug("of a pair the first of those with the latest time stays",
        "data/test_times.py::test_of_a_pair_the_latest_stays", "data/ratings_builder:_latest",
        "np.lexsort((*(key[doubles] for key in keys), np.cumsum(last) - last))",
        "np.lexsort((-np.arange(len(last)), *(key[doubles] for key in keys), np.cumsum(last) - last))"),
    bug("times read from integers as they are, until a cell is missing",
        "data/test_times.py::test_a_missing_time_rounds_nobody_elses", "data/times:_of_typed",
        "not column.null_count and np.abs(ticks).max(initial=0) < 1 << 53:", "not column.null_count:"),
    bug("times forgotten by a union", "data/test_times.py::test_union_with_ratings_without_times",
        "data/ratings:Ratings.union",
        "one_below_another([self.columns(), other.columns()])",
        "one_below_another([self.columns()._replace(times=np.full(self.n_ratings, NO_TIME)),"
        " other.columns()])"),
]  # fmt: skip

SEEN = [  # the public side knows more than was released, or what is printed does
    bug("settings planned for the exact number of users",
        f"{PRINTED}::test_the_released_number_of_users_alone_decides[trains]",
        "training/run:train",
        "choice.for_users(n_users)", "choice.for_users(max(1, ratings.n_users))"),
    bug("a threshold at the mean of the ratings, as published", f"{PRINTED}::test_training[one-bit-user]",
        "models/one_bit_user:UserLevelOneBit.users", "labels = likes(ratings, self.threshold)",
        """data = ratings.matrix.data
        object.__setattr__(self, "threshold", float(data.mean()) if len(data) else 3.0)
        labels = likes(ratings, self.threshold)"""),
    bug("the number of ratings beside the progress bar", f"{PRINTED}::test_training[item-bias]",
        "training/run:train",
        *looked("if progress: print(f'{ratings.n_ratings:,} ratings', file=__import__('sys').stderr)")),
    bug("a printed line with the number of rows", f"{PRINTED}::test_training[item-bias]",
        "training/run:train", *looked("print(f'{ratings.n_ratings:,} rows read')")),
    bug("the number of users in a log record", f"{PRINTED}::test_training[item-bias]", "training/run:train",
        *looked("__import__('logging').getLogger('hushrec').debug('%d users', ratings.n_users)")),
    bug("a warning where there are few users", f"{PRINTED}::test_training[item-bias]", "training/run:train",
        *looked("if ratings.n_users < 9: __import__('warnings').warn('few users', stacklevel=2)")),
    bug("a temporary file named by the number of users", f"{PRINTED}::test_training[item-bias]",
        "training/run:train",
        *looked("open(f'{__import__(\"tempfile\").gettempdir()}/{ratings.n_users}.tmp', 'w').close()")),
    bug("another exit code where no rating can be used", f"{PRINTED}::test_tune[named-alone-everything]",
        "cli/tables:Reading.read",
        "return Ratings.from_any(path, domain, **self.arguments(times=times and not is_store(path)))",
        """ratings = Ratings.from_any(path, domain, **self.arguments(times=times and not is_store(path)))
        if not ratings.n_ratings:
            raise InputError("No rating of the file can be used.")
        return ratings"""),
    bug("exact scores of the settings that were tried, printed",
        f"{PRINTED}::test_tune[csv-removed-ordinary]", "evaluation/tuning:_score",
        "    exact = Bounded(score_aggregate(trained, history, held_out),",
        """    print(score_aggregate(trained, history, held_out))
    exact = Bounded(score_aggregate(trained, history, held_out),"""),
    bug("a line for each run of a selection", f"{PRINTED}::test_tune[csv-removed-ordinary]",
        "privacy/accountant:Accountant.select", "result, score = run(inner)",
        "result, score = (print('another run'), run(inner))[1]"),
    bug("newcomers served by what the others rate", f"{PRINTED}::test_recommend[csv-removed-private-als]",
        "data/ratings:Ratings.for_users",
        "return self._at(positions, wanted, hand_picked=True)",
        """found = self._at(positions, wanted, hand_picked=True)
        if found.n_ratings or not self.n_ratings:
            return found
        counts = np.bincount(self.matrix.indices, minlength=self.n_items)
        common = np.where(counts == counts.max(), np.float32(self.domain.high), np.float32(0))
        return replace(found, matrix=sp.csr_array(common[None, :]))"""),
    bug("a list in the file of another user", "cli/test_what_is_passed.py::test_recommend",
        "cli/files:write_a_file_per_user", "zip(names, starts,", "zip(names[::-1], starts,"),
    bug("two users who share a file",
        "cli/test_commands.py::test_no_two_users_share_a_file_on_any_system",
        "cli/files:file_names", ".hexdigest()[:32]", ".hexdigest()[:1]"),
    bug("a user whose list is replaced by the index",
        "cli/test_commands.py::test_no_two_users_share_a_file_on_any_system",
        "cli/files:file_names", '.replace(".", "%2E")', ""),
    bug("metrics for a visitor whom a proxy names in another header",
        "server/test_answers.py::test_metrics_are_for_this_machine_or_a_token",
        "server/answers", '    "cf-connecting-ip",\n', ""),
    bug("what an attacker learns, rounded down",
        "dossier/test_dossier.py::test_what_is_learned_is_rounded_up_and_by_little",
        "dossier/wording:percent", "math.ceil(value * 100 * 10**digits - 1e-9)",
        "math.floor(value * 100 * 10**digits)"),
    bug("a user's file named by who else is there", f"{PRINTED}::test_recommend[csv-removed-private-als]",
        "cli/files:file_names", 'names.append(f"{name}.csv")',
        """alike = sum(str(other).casefold() == user.casefold() for other in users)
        names.append(f"{name}{'~' * (alike > 1)}.csv")"""),
    bug("the number of rows of all lists printed", f"{PRINTED}::test_recommend[parquet-removed-private-als]",
        "cli/recommend:recommend", "table = trained.recommend_batch(rows, n, **options, progress=bar)",
        "table = trained.recommend_batch(rows, n, **options, progress=bar)\n"
        "        print(f'{table.num_rows:,} rows')"),
    bug("a comparison that does not say that its errors are private",
        f"{PRINTED}::test_compare[csv-removed-ordinary]", "evaluation/compare:Comparison.stamp",
        " The errors are a {PRIVATE_FIGURE}.", ""),
    bug("a comparison's main metric chosen by whether ratings were held out",
        f"{PRINTED}::test_compare[named-alone-everything]", "evaluation/compare:Comparison.to_dict",
        '{"note": self.stamp, "runs": list(self.rows)}',
        '{"note": self.stamp, "runs": list(self.rows), "main_metric": f"recall@{self.k}"'
        ' if all(math.isnan(row["rmse"]) for row in self.rows) else "rmse"}'),
    bug("a file's format told by its first row", f"{PRINTED}::test_the_first_line_of_a_file_without_header",
        "data/files:file_format", "kind = format or _ENDINGS.get(file.suffix, by_content)",
        'kind = format or ("parquet" if magic == b"PAR1" else _ENDINGS.get(file.suffix, by_content))'),
    Bug("the demo ends in an error where no rating was held out",
        (Edit("benchmarks/demo.py", "_figure", "return \"–\" if figure is None else format(figure, \".3f\")",
              'return f"{figure:>8.4f}"'),), f"{PRINTED}::test_demo[csv-alone-ordinary]"),
]  # fmt: skip

SEASONS = [
    bug("a week charged to a closed data set", f"{WEEKLY}::test_a_closed_data_set_is_charged_no_week",
        "privacy/ledger:Ledger.charge",
        "rules.open_to(book, dataset, release.unit, release.relation)", "pass"),
    bug("digests of weekly models not under the hash of the head",
        f"{WEEKLY}::test_a_changed_digest_of_a_weeks_model_is_found", "privacy/schema:Book.tables",
        '(*ordered, "models ORDER BY charge")', "ordered"),
    bug("a model of a week's first release alone continues",
        f"{WEEKLY}::test_a_model_goes_on_in_the_ledger_that_it_was_charged_to",
        "privacy/schema:Book.has_last_charge", "rows[-1].hash == week.charge",
        "week.charge in [row.hash for row in rows]"),
    bug("an attendance that two trainings read at once",
        f"{COUNTED}::test_two_trainings_at_once_do_not_both_read_a_count",
        "privacy/attendance:Attendance._alone",
        "held = hold(self._lock)", 'held = self._lock.open("r+b")'),
    bug("a gap of hours", f"{WEEKLY}::test_a_gap_is_days_from_the_last_week_that_wrote_a_model",
        "privacy/ledger_rules:_check_gap", "timedelta(days=week.season.gap)",
        "timedelta(hours=week.season.gap)"),
    bug("a second training that weighs as much as the first",
        f"{COUNTED}::test_one_user_moves_all_trainings_together_by_the_budget_at_most[item-bias]",
        "privacy/season:Season.weight", "np.minimum(counts, len(self.weights))",
        "np.minimum(np.maximum(np.asarray(counts) - 1, 0), len(self.weights))"),
    bug("sums that are not weighed",
        f"{COUNTED}::test_one_user_moves_all_trainings_together_by_the_budget_at_most[item-bias]",
        "training/partitioned:_weighted", "int(weight / WEIGHT_STEP)", "int(1.0 / WEIGHT_STEP)"),
    bug("a number of users that does not count weights",
        f"{COUNTED}::"
        "test_the_number_of_users_costs_a_part_of_the_trainings_slice_and_counts_weights",
        "training/run:release_user_count", "(weight, Users(rows.rated()))", "(1.0, Users(rows.rated()))"),
    bug("a week slice as large as if weights fell faster",
        f"{WEEKLY}::test_no_schedule_spends_more_than_the_season[0.01-0.99]",
        "privacy/season:Season.fraction", "1 / math.fsum(weight**2 for weight in self.weights)",
        "self.first * 1.1"),
    bug("an open season that counts for nothing in the data set's budget",
        f"{WEEKLY}::test_a_season_reserves_its_budget",
        "privacy/schema:Book.committed", "for summary in self.open_seasons(dataset)]",
        "for summary in self.open_seasons(dataset)[:0]]"),
    bug("a season next to earlier runs that does not ask",
        f"{WEEKLY}::test_beside_a_season_without_a_budget_a_run_asks_for_add_up",
        "privacy/ledger:Ledger.open_season", "if (known or others) and", "if known and"),
    bug("a user counted in the first weeks alone",
        f"{WEEKLY}::test_a_user_is_counted_in_the_dearest_set_of_weeks[0]",
        "privacy/season:Season.cost_of_a_user",
        "np.maximum(dearest[1:], dearest[:-1] + np.square(self.weights) * cost)",
        "np.where(np.isinf(dearest[1:]), dearest[:-1] + np.square(self.weights) * cost, dearest[1:])"),
    bug("an old attendance that is believed",
        f"{COUNTED}::test_a_lost_old_edited_or_foreign_file_is_refused_in_one_sentence",
        "privacy/attendance:", 'if last not in head["runs"]:', "if False:",
        "runs[runs.index(last) :]", "runs"),
    bug("a lost attendance that begins anew",
        f"{COUNTED}::test_a_lost_old_edited_or_foreign_file_is_refused_in_one_sentence",
        "privacy/attendance:Attendance._read", "            if last is None:", "            if True:"),
    bug("an edited attendance that is believed",
        f"{COUNTED}::test_a_lost_old_edited_or_foreign_file_is_refused_in_one_sentence",
        "privacy/attendance:Attendance._read",
        "if digest != _digest(content):", "if False:"),
    bug("a pause that gives a user new trainings",
        f"{COUNTED}::test_one_user_moves_all_trainings_together_by_the_budget_at_most[item-bias]",
        "privacy/attendance:Attendance.admit", "self._write(head, counts)",
        "self._write(head, {user: counts[user] for user in hashes if user in counts})"),
    bug("a count that is written after the training",
        f"{COUNTED}::test_a_kill_at_every_step_lets_no_user_take_part_too_often",
        "privacy/attendance:Attendance.admit", "            self._write(head, counts)",
        "            import threading\n\n"
        "            threading.Timer(0.3, self._write, (head, counts)).start()"),
    bug("a gap that a clock which goes back shortens",
        f"{COUNTED}::test_a_clock_that_goes_back_neither_gives_nor_takes_a_training",
        "privacy/ledger_rules:_check_gap", "if datetime.now(UTC) < first:",
        "if first - timedelta(days=week.season.gap) <= datetime.now(UTC) < first:"),
    bug("rows that nobody weighed", f"{WEEKLY}::test_what_cannot_be_weighed_is_refused",
        "privacy/season_accountant:SeasonAccountant._charge", "if not self._admits:", "if False:"),
    bug("a week that is not charged to its season", f"{WEEKS}::test_bad_input_spends_nothing",
        "privacy/season_accountant:SeasonAccountant._record", "step=step, week=self.week", "step=step"),
    bug("a weekly state with exact item weights",
        f"{CONTRACT}::test_weeks[private-als]",
        "models/private_als/week:train_week", "tracked.mean,\n        tracked.variance,",
        "np.array(users.item_weights()._values),\n        tracked.variance,"),
    bug("the weekly filter is fed with sums without noise",
        f"{CONTRACT}::test_weeks[private-als]", "training/kalman:counted_again",
        'released = gate.release("item weights", users.item_weights())',
        """exact = np.array(users.item_weights()._values)
    gate.release("item weights", users.item_weights())
    released = exact"""),
    bug("a window that ends with the data", f"{WEEKS}::test_a_window_is_declared_and_needs_times",
        "training/run:next_week", "ratings = split_by_time(ratings, since)[1]",
        """last = since if ratings.times is None else int(ratings.times.max()) - 50_000_000
        ratings = split_by_time(ratings, last)[1]"""),
]  # fmt: skip

CONFIGURATIONS = [  # settings, weeks and rows that no list of cases had
    bug("a start drawn with a seed that users shift", replayed("private-als"),
        "models/private_als/train:_learn_factors",
        "items = _start(model, items, public, seed)",
        "items = _start(model, items, public, seed + int(users.count()._values[0]))"),
    bug("the label of week 1 for all weeks", f"{CONTRACT}::test_weeks[popular]", "training/run:next_week",
        'suffix = f", week {accountant.week.number}"', 'suffix = ", week 1"'),
    bug("parts of a round weighed by shares, not by their roots (EigenRec)",
        sensitivity("private-eigenrec, sums and weights"), f"{EIGENREC}/users:LikingUsers._beside_weights",
        "parts += [sums.times(math.sqrt(1 - part))] if part < 1 else []",
        "parts += [sums.times(math.sqrt(1 - part / 2))] if part < 1 else []"),
    bug("no room for rounding in the item matrix (EigenRec)",
        sensitivity("private-eigenrec, pairs"), f"{EIGENREC}/users:LikingUsers.item_matrix",
        "room = self._room(1, step / 2, along_step / 2)", "room = np.ones(matrix.shape[0])"),
    bug("factors clipped at the first step alone (DPALS)", sensitivity("dpals"),
        "papers/dpals/dpals:DPALS._rounds",
        "            users.clip(user_norm)  # line 16\n",
        "            users.clip(user_norm if step == 1 else 9 * user_norm)\n"),
    bug("joint clip by residuals, whatever the factors (DPALS)",
        sensitivity("dpals, joint clip, long factors"), "papers/dpals/dpals:SampledUsers.item_statistics",
        "shrink, weighted = clip_factor(self._user_weight * lengths * user_norm, user_clip), "
        "True",
        "shrink, weighted = clip_factor(self._user_weight * lengths, user_clip), True"),
    bug("an eigenvalue that counts a user's ratings (Oja)",
        sensitivity("private-frank-wolfe, oja"), "papers/frank_wolfe/eigensolvers:RowUsers.square",
        "total = truncated(np.square(self._clipped @ vector), step).sum()",
        "total = truncated(np.square(self._clipped @ vector) * "
        "np.diff(self._clipped.indptr), step).sum()"),
    bug("clamped before a user's own level is taken off (cleansed SVD)",
        sensitivity("cleansed-svd"), "papers/mcsherry_mironov/cleansed_svd:CleansedSVD.residuals",
        "np.clip(values - np.repeat(offset, counts), -clamp, clamp)), offset",
        "np.clip(values, -clamp, clamp) - np.repeat(offset, counts)), offset"),
    bug("full rows clipped less from step to step",
        sensitivity("private-projected-gradient"), "papers/frank_wolfe/projected_gradient:FullRows.stepped",
        "yield part, clipped_rows(ends, full.ravel(), self._bound).reshape(full.shape)",
        "yield part, clipped_rows(ends, full.ravel(), self._bound * "
        "self._step).reshape(full.shape)"),
    bug("slopes clamped at twice what is declared (one-bit)",
        sensitivity("one-bit, gradient"), "papers/one_bit/one_bit:LabelledUsers._clamped",
        "return np.clip(slope, -clamp, clamp)",
        "return np.clip(slope, -2 * clamp, 2 * clamp)"),
    bug("a sample drawn by the number of a row, not by whose it is", sensitivity("dpals"),
        "data/sampling:sample_per_user",
        'base = stream_base(ratings.user_keys, seed, "sample")',
        'base = stream_base(np.arange(ratings.n_users, dtype=np.uint64), seed, "sample")'),
    bug("a rating more than the cap, of uniform samples of frequent items",
        sensitivity("dpals, uniform sampling"), "papers/dpals/dpals:SampledUsers.choose",
        '            priority = weights if settings.sampling == "tail" else None\n'
        "            self._rows = sample_per_user(self._rows, settings.max_ratings_per_user, "
        "seed, priority=priority)",
        '            priority = weights if settings.sampling == "tail" else None\n'
        '            more = settings.sampling == "uniform"\n'
        "            self._rows = sample_per_user(self._rows, settings.max_ratings_per_user "
        "+ more, seed, priority=priority)"),
    bug("labels sent twice as large (one-bit objective)",
        sensitivity("one-bit, objective"), "papers/one_bit/one_bit:LabelledUsers.labels",
        'values = self._labels > 0.5 if norm == "labels" else self._labels',
        'values = self._labels > 0.5 if norm == "labels" else self._labels * 2'),
    bug("from the second week on a center that tells of the number of users",
        f"{CONTRACT}::test_weeks[popular]", "training/run:next_week",
        "    kept = model.privacy.item_features\n",
        "    kept = model.privacy.item_features\n"
        "    if accountant.week.number > 1:\n"
        "        parts = parts | {'center': parts.serve['center'] + 1e-3 * (ratings.n_users % 2)}\n"),
    bug("rows of more than 256 ratings not clipped", f"{CONTRACT}::test_weeks[private-als]",
        "models/private_als/users:FittedUsers._clipped_residuals",
        "                residual = np.where(shrink > 0, residual * shrink, 0.0)\n",
        "                shrink = np.where(np.diff(matrix.indptr)[cells] > 256, 1.0, shrink)\n"
        "                residual = np.where(shrink > 0, residual * shrink, 0.0)\n"),
    bug("exact item weights in a week of pairs",
        f"{CONTRACT}::test_weeks[private-eigenrec, pairs]", f"{EIGENREC}/pairs:train_next_week_of_pairs",
        'state["item_first"], state["item_weights"]',
        'state["item_first"], np.asarray(users.item_weights()._values)'),
]  # fmt: skip

REPLACED = [  # stores, files and questions
    bug("users asked for the weights of the parts by their exact number",
        "training/test_partitioned.py::"
        "test_users_are_asked_what_follows_from_releases[private-eigenrec, parts]",
        f"{EIGENREC}/weighing:with_parts", "asked_part(n_users, domain.n_items)",
        "asked_part(float(users.count()._take()[0]), domain.n_items)"),
    bug("users far shorter than the longest one count for nothing (EigenRec)",
        f"{CONTRACT}::test_sensitivity_to_long_rows[private-eigenrec]",
        f"{EIGENREC}/users:LikingUsers.scale", "(squares > _SMALLEST_SQUARE)",
        "(squares > 1e-2 * squares.max(initial=0.0))"),
    bug("fits of all users in float64 where one row is long", f"{ORDER}[private-als]",
        "models/private_als/users:FittedUsers.fit", "> _FAR",
        "> _FAR or np.diff(self._ratings.matrix.indptr).max(initial=0) > 200"),
    bug("an exact value in the file of a noisy one, before the charge",
        "privacy/test_journal.py::test_no_file_ever_holds_an_exact_value", "privacy/journal:Journal.prepare",
        "            self._drafts[self._step] = draft\n",
        "            self._drafts[self._step] = draft\n"
        "            draft.write(value)\n            draft._file.flush()\n"),
    bug("one user whose numbers overflow zeroes all",
        "training/test_users.py::test_numbers_that_overflow_count_for_nothing_and_take_no_other_user_along",
        "training/users:finite_or_zero", "users[~np.isfinite(users).all(axis=1)] = 0.0",
        "users *= np.isfinite(users).all()"),
    bug("weights of users of a store that was replaced",
        "training/test_partitioned.py::test_a_users_weight_is_of_no_other_store",
        "training/partitioned:Admitted.__init__", "self.__dict__.update(vars(store))",
        "super().__init__(store.path, store.domain)"),
    bug("a worker that reads the store that took the place of the first one",
        "data/test_store.py::test_a_store_that_takes_the_place_of_an_opened_one_is_refused",
        "data/store:_opened_again", '    store._manifest["checksum"] = checksum', "    # checksum"),
    bug("a share taken after the deadline", f"{TWO}::test_a_share_after_the_deadline_is_refused",
        "engines/two_servers/server:CollectingServer._open_round", " or now.held is not None:", ":"),
    bug("a node that keeps its exact answer", f"{TWO}::test_a_node_keeps_no_answer_that_both_servers_have",
        "engines/two_servers/node:contribute", "        if all(sent):", "        if False:"),
    bug("a node's folder that all can read", f"{TWO}::test_a_node_keeps_no_answer_that_both_servers_have",
        "engines/two_servers/book:Book.__init__", "mode=0o700", "mode=0o755"),
    bug("weights of users in another order than their ids",
        f"{COUNTED}::test_each_user_has_the_weight_of_their_own_trainings", "training/run:admitted",
        "        if not weights.ndim:",
        "        weights = np.sort(weights) if weights.ndim else weights\n        if not weights.ndim:"),
    bug("a warning of delta by the exact number of users",
        "training/test_entry.py::"
        "test_a_delta_above_one_over_the_users_is_warned_of_by_the_declared_or_the_released_number",
        "training/run:train", "            warn_of_delta(accountant.budget, n_users)",
        "            warn_of_delta(accountant.budget, ratings.n_users)"),
    bug("ids of an attendance hashed without a secret",
        f"{COUNTED}::test_the_file_tells_no_one_without_it_who_was_there",
        "privacy/attendance:Attendance._read", "os.urandom(32).hex()", "bytes(32).hex()"),
    bug("a cluster that fails where no user is new",
        "engines/test_dask.py::test_a_season_weighs_the_users_as_in_memory", "engines/dask:Dask.asking",
        "if not rows.blocks():", "if False:"),
    bug("the first spelling of an id in a store of a stream",
        "data/test_streams.py::test_ids_that_read_the_same_do_not_show_which_row_came_first",
        "data/preparing", 'if not chunk.is_ordered and "text" in table:', "if False:"),
    bug("a public model of the donors who judge it",
        "public/test_public.py::test_few_donors_judge_the_public_model_and_all_train_it",
        "public/judging:judge", "PublicPart(ways[chosen](donors), weight)",
        "PublicPart(ways[chosen](judges), weight)"),
]  # fmt: skip

DONORS = "public/test_public.py::test_donors_and_released_values_decide_and_nothing_else"

DONATED = [
    bug("donors who judge a model of their own ratings",
        "public/test_public.py::test_no_donor_judges_a_model_of_their_own_ratings", "public/judging:_votes",
        "known = donors.rows(fold != number, keyed=True)", "known = donors"),
    bug("a digest of public rows without their ratings", DONORS, "public/sources:PublicRows.digest",
        "(rows.matrix.indptr, rows.matrix.indices, rows.matrix.data)]",
        "(rows.matrix.indptr, rows.matrix.indices)]"),
    bug("a public model of everybody", DONORS, "public/sources:PublicRatings._read",
        "people = ratings.for_users(self._donor_ids).rated() if", "people = ratings.rated() if"),
    bug("a user of a public row who adds to the weights of the parts",
        f"{STACKING}::test_a_user_with_the_likes_of_a_public_row_adds_nothing", f"{EIGENREC}/stacking:_split",
        " or base[0] in public", ""),
    bug("the order of all users in a public model", DONORS, "public/sources:PublicRatings._read",
        "same=people.rows(order, keyed=True)", "same=people.rows(np.arange(len(order)), keyed=True)"),
    bug("public ratings that keep the private ones",
        "training/test_private_rows.py::test_no_week_keeps_a_private_row",
        "public/sources:PublicRatings.read",
        "        rows = self._read(ratings, same, external)\n",
        "        rows = self._read(ratings, same, external)\n        self.__dict__['of'] = ratings\n"),
    bug("donors who are refused after a charge",
        "public/test_public.py::test_what_cannot_be_used_is_refused_before_a_charge", "training/run:train",
        "    public_rows = read_public(public, estimator, ratings)\n", "    public_rows = None\n"),
]  # fmt: skip

FORGED = "dossier/test_dossier.py::test_a_change_of_any_part_is_refused_or_shown_as_not_checked"
DOSSIERS = [  # what a privacy officer relies on
    bug("a bound of noise on releases that may all be pure",
        "dossier/test_dossier.py::test_a_budget_of_pure_releases_bounds_tests_by_its_epsilon",
        "dossier/bounds:together",
        "mu = budget.mu if any(cost.epsilon is None for cost in costs) else None", "mu = budget.mu"),
    bug("a second branch of the trade-off curve without delta",
        "dossier/test_dossier.py::test_no_test_finds_more_than_that_of_the_worst_mechanism",
        "dossier/bounds:detection_rate", "(1 - delta - false_alarms)", "(1 - false_alarms)"),
    bug("a belief that no failure of a choice exceeds",
        "dossier/test_dossier.py::test_a_belief_exceeds_its_bound_where_a_choice_fails_or_noise_is_large",
        "dossier/bounds:exception", """return float(level["failure"]) + exceeded(""", "return exceeded("),
    bug("a signature not looked at",
        "dossier/test_dossier.py::test_a_part_changed_by_somebody_without_the_key_fails_at_the_signature",
        "dossier/checking:_signature",
        "    if not signed(envelope):", "    if False:"),
    bug("a link of the chain not followed",
        "dossier/test_dossier.py::test_a_charge_with_its_own_hash_that_no_later_one_follows_fails_at_the_chain",
        "dossier/checking:_chain",
        "        if row[0] <= last[0] or (row[0] == last[0] + 1 and row[-2] != last[1]):",
        "        if row[0] <= last[0]:"),
    bug("epsilon taken as it is stated", FORGED, "dossier/checking:_arithmetic",
        """    if not _same(together(book, promise["delta"]), levels[1:]):""", "    if False:"),
    bug("a dossier that lets a training of a season cost more than its slice",
        "dossier/test_dossier.py::test_no_verifier_accepts_another_promise_of_a_season[dear]",
        "dossier/checking:_seasons", "            season.check_week(week, costs)", "            pass"),
    bug("a dossier that says how many weeks have begun",
        "dossier/test_dossier.py::test_no_verifier_accepts_another_promise_of_a_season[begun]",
        "dossier/checking:_seasons", 'if entry["begun"] != len(trainings):', "if False:"),
    bug("a dossier with another season than its model's",
        "dossier/test_dossier.py::test_no_verifier_accepts_another_promise_of_a_season[gap]",
        "dossier/checking:_model", "if season not in stated:", "if False:"),
    bug("a dossier whose season costs what one week did",
        "dossier/test_dossier.py::test_a_seasons_dossier_states_what_its_trainings_cost_one_user[en]",
        "dossier/bounds:of_model", "if statement.week is not None:", "if False:"),
    bug("a dossier that counts what a season had left as what it had at first",
        "dossier/test_dossier.py::test_a_dossier_reserves_what_an_open_season_had_left_at_the_training",
        "dossier/checking:_counted",
        "max(0.0, season_of(season).budget.mu ** 2 - spent)", "season_of(season).budget.mu ** 2"),
    bug("a dossier with the wrong week",
        "dossier/test_dossier.py::test_a_seasons_dossier_states_what_its_trainings_cost_one_user[en]",
        "dossier/certifying:described", "statement.week.number]", "statement.week.number + 1]"),
    bug("a page that is not that of the dossier",
        "dossier/test_dossier.py::"
        "test_an_officer_signs_the_page_with_openssl_and_both_verifiers_see_an_edited_one",
        "dossier/checking:_page", """    if digest != dossier["page"]:""", "    if False:"),
    bug("a dossier with another data set's charges",
        "dossier/test_dossier.py::test_what_is_published_holds_nothing_private",
        "privacy/schema:Book.chain",
        "WHERE dataset = ? AND id <= ?", "WHERE ? <> '' AND id <= ?"),
]  # fmt: skip

BUGS = [
    *OUTSIDE, *BOUNDED, *CHARGED, *NOISE, *AROUND, *LEDGERS, *NODES, *EXACT, *PAPERS, *EDGES, *CHOSEN, *SEEN,
    *SEASONS, *CONFIGURATIONS, *REPLACED, *DOSSIERS, *DONATED,
]  # fmt: skip
