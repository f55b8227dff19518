"""What is measured of a model does not depend on where the ratings lie."""

import pytest

from hushrec import Accountant, Budget, InputError, ItemBias, Ratings, evaluate, realistic, split_ratings

ROWS = realistic(200, 40, 3000, seed=0)
TRAIN, TEST = split_ratings(ROWS, (0.7, 0.3), seed=0)


@pytest.mark.parametrize(("left", "right"), [(3, 3), (3, 2), (None, 3), (3, None)])
def test_stores_are_measured_as_ratings_are(tmp_path, left, right) -> None:
    model = ItemBias().fit(TRAIN, Accountant(Budget(5, 1e-6)))
    wanted = evaluate(model, TRAIN, TEST)
    stored = [
        rows if count is None else Ratings.prepare(rows, tmp_path / name, rows.domain, partitions=count)
        for name, rows, count in (("train", TRAIN, left), ("test", TEST, right))
    ]
    found = evaluate(model, *stored)
    assert (found.n_users, found.n_ratings, found.n_known) == (wanted.n_users, wanted.n_ratings, 0)
    for name, estimate in wanted.metrics.items():
        assert found.metrics[name].value == pytest.approx(estimate.value), name


def test_what_the_history_has_too_is_counted_in_stores(tmp_path) -> None:
    model = ItemBias().fit(TRAIN, Accountant(Budget(5, 1e-6)))
    stored = [
        Ratings.prepare(rows, tmp_path / name, rows.domain, partitions=3)
        for name, rows in zip("ab", (ROWS, TEST))
    ]
    assert evaluate(model, *stored).n_known == TEST.n_ratings


def test_a_damaged_store_is_named(tmp_path) -> None:
    model = ItemBias().fit(TRAIN, Accountant(Budget(5, 1e-6)))
    stored = [
        Ratings.prepare(rows, tmp_path / name, rows.domain, partitions=2)
        for name, rows in zip("ab", (TRAIN, TEST))
    ]
    stored[1].partitions()[1].path.write_bytes(b"")
    with pytest.raises(InputError, match="part-00001.arrow"):
        evaluate(model, *stored)


def test_a_private_training_holds_no_store_whole(tmp_path, monkeypatch) -> None:
    """Partition by partition, and the model is that of the rows in memory but for its noise."""
    store = Ratings.prepare(ROWS, tmp_path / "rows", ROWS.domain, partitions=3)
    whole, read = type(store).ratings, []
    monkeypatch.setattr(type(store), "ratings", lambda self: read.append(self) or whole(self))
    model = ItemBias().fit(store, Accountant(Budget(5, 1e-6)))
    assert not read and model.privacy.private and len(model.item_bias) == 40
