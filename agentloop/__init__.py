"""Episodes, Algorithm 1, the ledger, and the environments they run in."""
