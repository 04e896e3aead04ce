"""The advisor: whether to segment a stock, into how many segments, and the resulting throughput.

Arithmetic on what you know of your own work (`advise`); and what you may not know of it: the cost of a call, found by a
short run against your own server (`measure`), and the hold, found in the ledger of a pool that has sold (`past_hold`).
"""

from segmented.advise.advice import Advice, advise
from segmented.advise.measured import Measured, PastHold, measure, past_hold
from segmented.advise.prediction import Prediction, predict, predict_lock_free
from segmented.advise.workload import Workload

__all__ = [
    "Advice",
    "Measured",
    "PastHold",
    "Prediction",
    "Workload",
    "advise",
    "measure",
    "past_hold",
    "predict",
    "predict_lock_free",
]
