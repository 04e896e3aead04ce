"""The advisor: whether to segment a stock, into how many segments, and the resulting throughput.

Arithmetic on what you know of your own work (`advise`), and the cost of a call to your own server (`measure`).
"""

from segmented.advise.advice import Advice, advise
from segmented.advise.measured import Measured, measure
from segmented.advise.prediction import Prediction, Workload, predict, predict_lock_free

__all__ = ["Advice", "Measured", "Prediction", "Workload", "advise", "measure", "predict", "predict_lock_free"]
