"""A small Gaussian process: Matérn-5/2, one weight a knob, fitted by random search.

Random draws instead of gradients: with a few dozen points and a dozen weights they are as good, they
cannot get stuck, and a fit costs milliseconds. Optional prior mean, input warping and sparse
approximations are left out.
"""

import math
from dataclasses import dataclass

import numpy as np

from autotune.tuning.search.grid import Numbers, Rows

PRIOR_SPREAD = 1.3
"""Standard deviation of the log weights (inverse squared length scales) before any data."""
NEAR_SPREAD = 0.4
JITTER = 1e-6
_SCALE_LIMITS = (0.05, 20.0)
_SQRT_5 = math.sqrt(5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A fitted process on standardized targets.

    weights: one a knob; scale: output variance; offset, spread: what undoes the standardization
    """

    weights: Numbers
    owners: Rows
    features: Numbers
    targets: Numbers
    noise: Numbers
    scale: float
    offset: float
    spread: float
    whitened: Numbers
    inverse: Numbers

    def predict(self, features: Numbers) -> tuple[Numbers, Numbers]:
        """Give mean and standard deviation of the noise-free function."""
        cross = _kernel(_distances(self.features, features, self.weights[None], self.owners)[0])
        reduced = self.inverse @ cross
        mean = reduced.T @ self.whitened
        variance = self.scale * (1.0 - np.einsum("ij,ij->j", reduced, reduced))
        deviation = np.sqrt(np.maximum(variance, 1e-9))
        return self.offset + self.spread * mean, self.spread * deviation


def fit(
    features: Numbers,
    owners: Rows,
    targets: Numbers,
    noise: Numbers,
    *,
    generator: np.random.Generator,
    standardized: bool = True,
    previous: Numbers | None = None,
) -> Process:
    """Choose weights by their posterior probability.

    noise: variance of each target, in its own unit; previous: weights of an earlier fit
    """
    offset = float(targets.mean())
    spread = max(float(targets.std()), 0.02) if standardized else 1.0
    scaled = (targets - offset) / spread
    nu = noise / spread**2
    candidates = _draws(int(owners.max()) + 1, len(targets), generator, previous)
    scores = _scores(features, owners, scaled, nu, candidates)
    best = candidates[int(np.argmax(scores))]
    return condition(features, owners, targets, noise, weights=best, offset=offset, spread=spread)


def condition(
    features: Numbers,
    owners: Rows,
    targets: Numbers,
    noise: Numbers,
    *,
    weights: Numbers,
    offset: float,
    spread: float,
) -> Process:
    """Take in data with weights and standardization as they are."""
    scaled = (targets - offset) / spread
    nu = noise / spread**2
    kernel = _kernel(_distances(features, features, weights[None], owners)[0])
    kernel[np.diag_indices_from(kernel)] += nu + JITTER
    inverse = np.linalg.inv(np.linalg.cholesky(kernel))
    whitened = inverse @ scaled
    return Process(
        weights=weights,
        owners=owners,
        features=features,
        targets=targets,
        noise=noise,
        scale=float(np.clip(np.mean(whitened**2), *_SCALE_LIMITS)),
        offset=offset,
        spread=spread,
        whitened=whitened,
        inverse=inverse,
    )


def _draws(
    knobs: int, points: int, generator: np.random.Generator, previous: Numbers | None
) -> Numbers:
    """Draw weights from the prior, half of them around an earlier fit. Fewer where a fit is dear."""
    count = 48 if points <= 60 else 28 if points <= 130 else 10  # noqa: PLR2004  see above
    logs = generator.normal(0.0, PRIOR_SPREAD, (count, knobs))
    if previous is not None:
        near = count // 2
        logs[:near] = np.log(previous) + generator.normal(0.0, NEAR_SPREAD, (near, knobs))
        logs[0] = np.log(previous)
    return np.exp(logs)


def _scores(
    features: Numbers, owners: Rows, scaled: Numbers, nu: Numbers, candidates: Numbers
) -> Numbers:
    kernels = _kernel(_distances(features, features, candidates, owners))
    diagonal = np.arange(len(scaled))
    kernels[:, diagonal, diagonal] += nu + JITTER
    lower = np.linalg.cholesky(kernels)
    whitened = np.linalg.solve(lower, np.broadcast_to(scaled[:, None], (*lower.shape[:2], 1)))
    squares = np.sum(whitened[..., 0] ** 2, axis=1)
    scale = np.clip(squares / len(scaled), *_SCALE_LIMITS)
    logs = np.log(lower[:, diagonal, diagonal]).sum(axis=1)
    prior = 0.5 * np.sum((np.log(candidates) / PRIOR_SPREAD) ** 2, axis=1)
    result: Numbers = -0.5 * len(scaled) * np.log(scale) - logs - 0.5 * squares / scale - prior
    return result


def _distances(left: Numbers, right: Numbers, weights: Numbers, owners: Rows) -> Numbers:
    """Weigh squared distances, one matrix a set of weights."""
    scales = np.sqrt(weights)[:, None, owners]
    ours, theirs = left * scales, right * scales
    squares = (ours**2).sum(axis=2)[:, :, None] + (theirs**2).sum(axis=2)[:, None, :]
    result: Numbers = np.maximum(squares - 2.0 * ours @ theirs.transpose(0, 2, 1), 0.0)
    return result


def _kernel(distances: Numbers) -> Numbers:
    rho = _SQRT_5 * np.sqrt(distances)
    result: Numbers = (1.0 + rho + rho**2 / 3.0) * np.exp(-rho)
    return result
