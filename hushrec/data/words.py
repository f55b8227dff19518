"""The nearest items of each item by the words of public texts, such as titles."""

from __future__ import annotations

import html
import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.sparse as sp

from hushrec.types import Array

#: Most neighbours of an item. Model files hold 8 bytes for each.
MOST_NEIGHBOURS = 20
#: Most characters and different words of an item that count.
_MOST_CHARACTERS, _MOST_WORDS = 20_000, 500
#: Most products of two cells in all cosines: bounds the time. The commonest words go first.
_MOST_PRODUCTS = 1_000_000_000
#: Cells of a block of cosines.
_BLOCK = 1 << 24
#: Letters of scripts that leave no blank between words: Thai to Khmer, kana, and Han.
_NO_BLANKS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
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


def neighbours_by_words(texts: Sequence[str]) -> Neighbours | None:
    """Return each text's nearest other texts by the cosine of TF-IDF rows, or None if none share a word.

    Words are compared without case (NFKC, case folding). Scripts without blanks between words count by pairs
    of characters. A word of a single text or of all of them counts for nothing.
    """
    rows = _tf_idf(texts)
    if not rows.nnz:
        return None
    return _nearest(rows)


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text; of a script without blanks, pairs of characters."""
    text = text[:_MOST_CHARACTERS]
    text = html.unescape(_TAG.sub(" ", text)) if "<" in text or "&" in text else text
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    word, run = _patterns()
    if not run.search(folded):
        yield from word.findall(folded)
        return
    for part in re.split(f"([{_NO_BLANKS}]+)", folded):
        if run.match(part):
            yield from (part[at : at + 2] for at in range(max(len(part) - 1, 1)))
        else:
            yield from word.findall(part)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of a word, with vowel signs and other marks, and of a script without blanks."""
    marks = (chr(code) for code in range(1 << 16) if unicodedata.category(chr(code))[0] == "M")
    return re.compile(rf"[\w{''.join(marks)}]+"), re.compile(f"[{_NO_BLANKS}]")


def _tf_idf(texts: Sequence[str]) -> sp.csr_array:
    known: dict[str, int] = {}
    ends, columns = array("q", [0]), array("q")
    for text in texts:
        words = list(dict.fromkeys(words_of(text)))[:_MOST_WORDS]
        columns.extend(known.setdefault(word, len(known)) for word in words)
        ends.append(len(columns))
    n_texts = int((np.diff(ends) > 0).sum())
    cells = np.ones(len(columns), np.float32)
    rows = sp.csr_array((cells, np.asarray(columns), np.asarray(ends)), shape=(len(texts), len(known)))
    counts = np.bincount(rows.indices, minlength=len(known))
    order = np.argsort(counts, kind="stable")
    cheap = np.cumsum(counts[order].astype(np.float64) ** 2) <= _MOST_PRODUCTS
    kept = np.sort(order[cheap & (counts[order] > 1) & (counts[order] < n_texts)])
    weights = np.log((1 + n_texts) / (1 + counts[kept])) + 1
    rows = rows[:, kept] @ sp.diags_array(weights.astype(np.float32))
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    return (sp.diags_array(1 / np.maximum(lengths, 1e-9)) @ rows).tocsr().astype(np.float32)


def _nearest(rows: sp.csr_array) -> Neighbours:
    n_items = rows.shape[0]
    most = min(MOST_NEIGHBOURS, n_items - 1)
    items = np.tile(np.arange(n_items, dtype=np.int32)[:, None], most)
    similarity = np.zeros((n_items, most), np.float32)
    across, step = rows.T.tocsr(), max(1, _BLOCK // n_items)
    for begin in range(0, n_items, step):
        block = (rows[begin : begin + step] @ across).tocsr()
        for row, (first, last) in enumerate(zip(block.indptr, block.indptr[1:]), begin):
            others, cosines = block.indices[first:last], block.data[first:last]
            if len(others) > most + 1:
                least = np.partition(cosines, -most - 1)[-most - 1]
                others, cosines = others[cosines >= least], cosines[cosines >= least]
            others, cosines = others[others != row], cosines[others != row]
            # of equals the next in a circle, so that no item is a neighbour of all others
            best = np.lexsort(((others - row) % n_items, -cosines))[:most]
            items[row, : len(best)], similarity[row, : len(best)] = others[best], cosines[best]
    return Neighbours(items, np.minimum(similarity, 1))
