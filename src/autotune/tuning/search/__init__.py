"""What to try next. The only package that knows Optuna."""

from autotune.tuning.search.optuna_search import OptunaSearch, Place, open_search
from autotune.tuning.search.sampler import SAMPLERS, GridExhaustedError

__all__ = ["SAMPLERS", "GridExhaustedError", "OptunaSearch", "Place", "open_search"]
