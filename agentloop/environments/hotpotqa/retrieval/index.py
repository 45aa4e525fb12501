"""The embedded retriever: Lucene's BM25, built once, stored, memory-mapped.

k1 1.5 and b 0.75 over title and text, English stop words out, Snowball stems by PyStemmer (Robertson and
Zaragoza 2009; Kamphuis et al. 2020 for the variant). A stored index is

    passages.arrow                         the passages themselves
    data.npy, indices.npy, indptr.npy      scores by word, see `score_words`
    vocabulary.json                        number of each word
    index.json                             what it was made of and with, and the stop words; written last

Letters: N passages, V words, E pairs of a word and a passage that holds it.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from occupancy.record.errors import DataError, InputError, imported
from occupancy.record.reading import reading
from occupancy.record.specs import Size, check_entries

from ...cache import cache_folder, made_once
from .passages import Corpus, Passage, store, tell

K1, B = 1.5, 0.75
FORMAT = 1
ARRAYS = ("data", "indices", "indptr")
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by for if in into is it no not of on or such that the their then there "
        "these they this to was will with",
    )
)
_WORD = re.compile(r"(?u)\b\w\w+\b")


@dataclass(frozen=True)
class Bm25:
    """An opened index; `find` is synchronous and takes well under a millisecond for 34,476 passages."""

    corpus: Corpus
    name: str
    """Method, package versions and the passages' hash: what a result depends on."""
    scores: Any
    """(data, indices, indptr): see `score_words`."""
    vocabulary: dict[str, int]
    stemmer: Any
    stop: frozenset[str]

    def find(self, query: str, k: int) -> list[Passage]:
        """The k best passages, best first, equal scores by passage number; fewer where fewer share a word."""
        import numpy as np

        from .topk import best_documents

        if k < 1:
            raise InputError(f"k={k}: expected at least 1 passage")
        tokens = [self.vocabulary[w] for w in self.words(query) if w in self.vocabulary]
        documents, values = best_documents(
            *self.scores, np.array(tokens, np.int64), len(self.corpus), min(k, len(self.corpus))
        )
        return [
            self.corpus.passage(int(doc), score=float(score))
            for doc, score in zip(documents, values, strict=True)
        ]

    def words(self, text: str) -> list[str]:
        """Stems of the words that count."""
        return _words(text, self.stemmer, self.stop)


def open_bm25(files: Sequence[Path], *, cache: Path | None = None) -> Bm25:
    """Open the stored index of these corpus files; built first where there is none yet.

    cache   folder of stored indexes; None: fewsteps/hotpotqa in XDG_CACHE_HOME, else in ~/.cache
    """
    for file in files:
        if not file.is_file():
            raise InputError(f"corpus {file}: there is no such file; name a .parquet or .jsonl of passages")
    folder = (cache or cache_folder("hotpotqa")) / _key(files)
    return load_bm25(made_once(folder, lambda draft: build_bm25(files, draft)))


def load_bm25(folder: Path) -> Bm25:
    """Open a stored index; its arrays and passages are memory-mapped."""
    import numpy as np

    stemmer = _stemmer()
    then = "delete it, and it is built again"
    with reading(f"the index {folder}", then=then):
        made = json.loads((folder / "index.json").read_text("utf-8"))
        vocabulary = json.loads((folder / "vocabulary.json").read_text("utf-8"))
        check_entries(made, {"name": str, "passages": Size, "stop_words": tuple[str, ...]}, of=f"{folder}")
    try:
        scores = tuple(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS)
        corpus = Corpus(folder / "passages.arrow")
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder}: no usable index ({error}); {then}") from error
    if len(corpus) != made["passages"] or len(scores[2]) < len(vocabulary) + 1:
        raise DataError(
            f"{folder}: {len(corpus)} passages and {len(scores[2])} offsets, expected {made['passages']} and "
            f"more than {len(vocabulary)}; {then}"
        )
    return Bm25(corpus, made["name"], scores, vocabulary, stemmer, frozenset(made["stop_words"]))


def build_bm25(files: Sequence[Path], folder: Path) -> None:
    """Build an index into the empty `folder`."""
    import numpy as np

    stemmer = _stemmer()
    digest = store(files, folder / "passages.arrow")
    texts = Corpus(folder / "passages.arrow").indexed()
    vocabulary, scores = score_words(_words(text, stemmer, STOP_WORDS) for text in texts)
    if not vocabulary:
        told = f"{', '.join(map(str, files))}: no word to search by in {len(texts)} passages"
        raise DataError(f"{told}: they are empty, or hold stop words and single letters only")
    tell("scored", len(texts))
    for name, values in zip(ARRAYS, scores, strict=True):
        np.save(folder / f"{name}.npy", values)
    (folder / "vocabulary.json").write_text(json.dumps(vocabulary), "utf-8")
    made = {
        "name": f"bm25 lucene k1={K1} b={B}, PyStemmer {version('PyStemmer')}, "
        f"{len(texts)} passages {digest}",
        "passages": len(texts),
        "stop_words": sorted(STOP_WORDS),
    }
    (folder / "index.json").write_text(json.dumps(made) + "\n", "utf-8")
    tell("stored", len(texts))


def _key(files: Sequence[Path]) -> str:
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return blake2b(repr((FORMAT, stats)).encode(), digest_size=8).hexdigest()


def score_words(documents: Iterable[list[str]]) -> tuple[dict[str, int], tuple[Any, Any, Any]]:
    """BM25 of every word in every document: (number of each word, (data, indices, indptr)).

    data [E] float32 and indices [E] int32: scores and documents of word v, documents rising, are at
    indptr[v] to indptr[v + 1]; indptr [V + 1] int64. A score is ln(1 + (N - n + .5) / (n + .5)) tf / (tf +
    k1 (1 - b + b L / mean L)), with n documents that hold the word, tf its count and L the document's words.
    """
    import numpy as np

    vocabulary: dict[str, int] = {}
    words, holders, counts, lengths = (array("i") for _ in range(4))
    for number, own in enumerate(documents):
        lengths.append(len(own))
        for text, count in Counter(own).items():
            words.append(vocabulary.setdefault(text, len(vocabulary)))
            holders.append(number)
            counts.append(count)
    word, holder, tf, length = (np.frombuffer(x, np.int32) for x in (words, holders, counts, lengths))
    if not vocabulary:
        return {}, (np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(1, np.int64))
    found = np.bincount(word)
    idf = np.log1p((len(length) - found + 0.5) / (found + 0.5))
    norm = K1 * (1 - B + B * length / length.mean())
    # A stable order keeps the documents of a word rising.
    order = np.argsort(word, kind="stable")
    data = (idf[word] * tf / (tf + norm[holder])).astype(np.float32)[order]
    return vocabulary, (data, holder[order], np.concatenate([[0], np.cumsum(found)]).astype(np.int64))


def _words(text: str, stemmer: Any, stop: frozenset[str]) -> list[str]:
    stems: list[str] = stemmer.stemWords([w for w in _WORD.findall(text.lower()) if w not in stop])
    return stems


def _stemmer() -> Any:
    return imported("Stemmer", "hotpotqa", "PyStemmer").Stemmer("english")
