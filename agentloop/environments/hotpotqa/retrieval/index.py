"""The embedded retriever: BM25 by bm25s with PyStemmer, built once, stored, memory-mapped.

Lucene's BM25 with k1 1.5 and b 0.75 over title and text, English stop words out, Snowball stems
(Robertson and Zaragoza 2009; Kamphuis et al. 2020 for the variant). A stored index is

    passages.arrow                         the passages themselves
    data.npy, indices.npy, indptr.npy      the scores by token, as bm25s computes them
    vocabulary.json                        token numbers
    index.json                             what it was made of and with, and the stop words; written last

bm25s is needed to build an index and not to open one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from occupancy.record.errors import DataError, InputError, MissingExtra

from .passages import Corpus, Passage, Told, store

K1, B = 1.5, 0.75
FORMAT = 1
ARRAYS = ("data", "indices", "indptr")
_WORD = re.compile(r"(?u)\b\w\w+\b")


def quiet(stage: str, done: int) -> None:
    """Tell nobody."""


def on_stderr(stage: str, done: int) -> None:
    """Tell a person at a terminal; a log file gets no such lines."""
    if sys.stderr.isatty():
        sys.stderr.write(f"index: {stage}, {done:,} passages\n")


@dataclass(frozen=True)
class Bm25:
    """An opened index; `find` is synchronous and takes well under a millisecond for 34,476 passages."""

    corpus: Corpus
    name: str
    """Method, package versions and the passages' hash: what a result depends on."""
    scores: Any
    """(data, indices, indptr): scores and passages of token i stand at indptr[i] to indptr[i + 1]."""
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
        """Stems of the words that count: what bm25s.tokenize gives, without its set-up for each call."""
        stems: list[str] = self.stemmer.stemWords(
            [w for w in _WORD.findall(text.lower()) if w not in self.stop]
        )
        return stems


def open_bm25(files: Sequence[Path], *, cache: Path | None = None, told: Told = on_stderr) -> Bm25:
    """Open the stored index of these corpus files; built first where there is none yet.

    cache   folder of stored indexes; None: fewsteps/hotpotqa in XDG_CACHE_HOME, else in ~/.cache
    """
    for file in files:
        if not file.is_file():
            raise InputError(f"corpus {file}: there is no such file; name a .parquet or .jsonl of passages")
    home = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fewsteps" / "hotpotqa"
    folder = home / _key(files)
    if not (folder / "index.json").is_file():
        _build_aside(files, folder, told)
    return load_bm25(folder)


def load_bm25(folder: Path) -> Bm25:
    """Open a stored index; its arrays and passages are memory-mapped."""
    import numpy as np

    stemmer = _stemmer()
    try:
        made = json.loads((folder / "index.json").read_text("utf-8"))
        vocabulary = json.loads((folder / "vocabulary.json").read_text("utf-8"))
        scores = tuple(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS)
        corpus = Corpus(folder / "passages.arrow")
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: no usable index ({error}); delete the folder to build it anew") from error
    if len(corpus) != made["passages"] or len(scores[2]) < len(vocabulary) + 1:
        raise DataError(
            f"{folder}: {len(corpus)} passages and {len(scores[2])} offsets, expected {made['passages']} and "
            f"more than {len(vocabulary)}; delete the folder to build it anew"
        )
    return Bm25(corpus, made["name"], scores, vocabulary, stemmer, frozenset(made["stop_words"]))


def build_bm25(files: Sequence[Path], folder: Path, *, told: Told = quiet) -> None:
    """Build an index into the empty `folder`."""
    import numpy as np

    stemmer = _stemmer()
    bm25s = import_bm25s()
    digest = store(files, folder / "passages.arrow", told=told)
    texts = Corpus(folder / "passages.arrow").indexed()
    bars = sys.stderr.isatty()
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=bars)
    if not any(map(len, tokens.ids)):
        raise DataError(
            f"{', '.join(map(str, files))}: no word to search by in {len(texts)} passages: they are "
            f"empty, or hold stop words and single letters only"
        )
    told("tokenised", len(texts))
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index(tokens, show_progress=bars)
    told("scored", len(texts))
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", index.scores[name])
    # bm25s adds an empty word of its own, without scores.
    vocabulary = {word: token for word, token in index.vocab_dict.items() if word}
    (folder / "vocabulary.json").write_text(json.dumps(vocabulary), "utf-8")
    made = {
        "name": f"bm25s {version('bm25s')} lucene k1={K1} b={B}, PyStemmer {version('PyStemmer')}, "
        f"{len(texts)} passages {digest}",
        "passages": len(texts),
        "stop_words": sorted(bm25s.stopwords.STOPWORDS_EN),
    }
    (folder / "index.json").write_text(json.dumps(made) + "\n", "utf-8")
    told("stored", len(texts))


def _build_aside(files: Sequence[Path], folder: Path, told: Told) -> None:
    """Build under another name and rename, so that no half index is ever opened; the first of two wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
    try:
        build_bm25(files, draft, told=told)
        draft.rename(folder)
    except OSError:
        if not (folder / "index.json").is_file():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _key(files: Sequence[Path]) -> str:
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return blake2b(repr((FORMAT, stats)).encode(), digest_size=8).hexdigest()


def import_bm25s() -> Any:
    """bm25s, kept from starting jax: that would take a GPU's memory, and threads that no fork survives.

    It would only use jax to select the best documents, which `topk` does here.
    """
    jax = sys.modules.get("jax")
    sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        import bm25s
    except ImportError as error:
        raise MissingExtra("bm25s", "hotpotqa") from error
    finally:
        del sys.modules["jax"]
        if jax is not None:
            sys.modules["jax"] = jax
    return bm25s


def _stemmer() -> Any:
    try:
        import Stemmer
    except ImportError as error:
        raise MissingExtra("PyStemmer", "hotpotqa") from error
    return Stemmer.Stemmer("english")
