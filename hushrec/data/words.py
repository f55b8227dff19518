"""The nearest items of each item by the words of public texts, such as titles."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hushrec.types import Array

#: Most neighbours of an item. Model files hold 8 bytes for each.
MOST_NEIGHBOURS = 20
#: Most characters of a cell that count.
_MOST_CHARACTERS = 10_000
#: Different words from which a cell counts no more. Chosen on a shop with random words as descriptions.
_LONG = 8
#: Most products of two cells in all cosines: bounds the time. The commonest words go first.
_MOST_PRODUCTS = 1_000_000_000
#: Cells of a block of cosines.
_BLOCK = 1 << 22
#: Scripts that leave no blank between words: Thai and Lao, Burmese, Khmer, kana, Han.
_NO_BLANKS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\U00020000-\U0003ffff"
)
_TAG = re.compile(r"</?[A-Za-z!][^<>]*>")


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The most similar other items of each item.

    Parameters
    ----------
    items : ndarray of int32, shape (n_items, n_neighbours)
        Catalogue positions, most similar first; the item itself where it has fewer neighbours.
    similarity : ndarray of float32, shape (n_items, n_neighbours)
        Cosines in [0, 1]; 0 where the item has fewer neighbours.
    """

    items: Array
    similarity: Array

    def first(self, count: int) -> Neighbours:
        """Return the neighbours of the first items among these."""
        near, itself = self.items[:count], np.arange(count, dtype=np.int32)[:, None]
        return Neighbours(np.where(near < count, near, itself), self.similarity[:count] * (near < count))


def neighbours_by_words(cells: Sequence[Iterable[str]]) -> Neighbours | None:
    """Return each item's nearest other items by the cosine of TF-IDF rows, or None if none share a word.

    Parameters
    ----------
    cells : sequence of iterables of str
        The texts of each item. HTML tags count for nothing, nor does a word that all items have.
    """
    rows = _tf_idf(cells)
    return _nearest(rows) if rows.nnz else None


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text after NFKC and case folding.

    Scripts without blanks between words count by pairs of characters, alphabets among them by triples.
    """
    text = text[:_MOST_CHARACTERS]
    text = html.unescape(_TAG.sub(" ", text)) if "<" in text or "&" in text else text
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    word, run = _patterns()
    for part in run.split(folded):
        if run.match(part):
            size = 2 if part >= "\u3000" else 3
            yield from (part[at : at + size] for at in range(max(len(part) - size + 1, 1)))
        else:
            yield from word.findall(part)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of a word, with vowel signs and other marks, and of a run without blanks."""
    marks = (chr(code) for code in range(1 << 16) if unicodedata.category(chr(code))[0] == "M")
    return re.compile(rf"[\w{''.join(marks)}]+"), re.compile(f"([{_NO_BLANKS}]+)")


def _tf_idf(cells: Sequence[Iterable[str]]) -> sp.csr_array:
    """Return the words that several items share, in rows of length 1 with all words.

    A long text counts as much as one of eight words, or descriptions would outweigh titles. Each row gets
    one more word that no other has. Two equal short texts are then less similar than two equal long ones.
    """
    known: dict[str, int] = {}
    ends, columns, shares = array("q", [0]), array("i"), array("f")
    for texts in cells:
        for text in texts:
            words = {known.setdefault(word, len(known)) for word in words_of(text)}
            columns.extend(words)
            shares.extend([math.sqrt(min(1.0, _LONG / len(words)))] * len(words) if words else [])
        ends.append(len(columns))
    n_items = len(cells)
    arrays = np.asarray(shares, np.float64), np.asarray(columns), np.asarray(ends)
    rows = sp.csr_array(arrays, shape=(n_items, len(known)))
    rows.sum_duplicates()
    counts = np.bincount(rows.indices, minlength=len(known))
    weights = np.where(counts < n_items, np.log((1 + n_items) / (1 + counts)) + 1, 0.0)
    rows.data *= weights[rows.indices]
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1) + (math.log((1 + n_items) / 2) + 1) ** 2)
    order = np.argsort(counts, kind="stable")
    cheap = order[np.cumsum(counts[order].astype(np.float64) ** 2) <= _MOST_PRODUCTS]
    shared = np.sort(cheap[(counts[cheap] > 1) & (weights[cheap] > 0)])
    return (sp.diags_array(1 / lengths) @ rows[:, shared]).tocsr()


def _nearest(rows: sp.csr_array) -> Neighbours:
    n_items = rows.shape[0]
    most = min(MOST_NEIGHBOURS, n_items - 1)
    items = np.tile(np.arange(n_items, dtype=np.int32)[:, None], most)
    similarity = np.zeros((n_items, most), np.float32)
    across, step = rows.T.tocsr(), max(1, _BLOCK // n_items)
    for begin in range(0, n_items, step):
        block = (rows[begin : begin + step] @ across).tocsr()
        for row, (first, last) in enumerate(pairwise(block.indptr), begin):
            others, cosines = block.indices[first:last], block.data[first:last].astype(np.float32)
            if len(others) > most + 1:
                least = np.partition(cosines, -most - 1)[-most - 1]
                others, cosines = others[cosines >= least], cosines[cosines >= least]
            others, cosines = others[others != row], cosines[others != row]
            # among equals the next by position, from the last item on to the first: neighbours differ
            best = np.lexsort(((others - row) % n_items, -cosines))[:most]
            items[row, : len(best)], similarity[row, : len(best)] = others[best], cosines[best]
    similarity = np.minimum(similarity, 1)
    items.setflags(write=False)
    similarity.setflags(write=False)
    return Neighbours(items, similarity)
