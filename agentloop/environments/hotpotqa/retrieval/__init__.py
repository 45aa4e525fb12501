"""Passages for a query: a corpus and its BM25 index, a server for it, a client, and joins of several."""
