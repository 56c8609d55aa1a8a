"""What to try next. The only package that knows Optuna."""

from autotune.tuning.search.optuna_search import OptunaSearch, Place, open_search
from autotune.tuning.search.proposal import GridExhaustedError
from autotune.tuning.search.sampler import SAMPLERS
from autotune.tuning.search.serving import ServingSampler
from autotune.tuning.search.several_loads import Failure, LoadPoint, run_search
from autotune.tuning.search.storage import explained

__all__ = [
    "SAMPLERS",
    "Failure",
    "GridExhaustedError",
    "LoadPoint",
    "OptunaSearch",
    "Place",
    "ServingSampler",
    "explained",
    "open_search",
    "run_search",
]
