"""Comparing evaluations: `scores` reads attempts, `paired` computes differences, `telling` says them.

from analysis.compare import compare

found = compare({"bc": "EVAL_BC", "op-short": ["EVAL_OP_SEED_0", "EVAL_OP_SEED_1"]}, k=(1, 4))
found.to_pandas()            # one row a difference
found.rates_to_pandas()      # one row an arm and k
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
