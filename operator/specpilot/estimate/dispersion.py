"""How much evidence really varies between windows, against what its model says."""

from __future__ import annotations

from dataclasses import dataclass

from specpilot.estimate import constants as c


@dataclass(frozen=True, slots=True)
class Dispersion:
    """A ratio of variances: measured over assumed. `windows` is how many measured it."""

    value: float
    windows: float = 0.0

    def after(self, ratio: float, bounds: tuple[float, float], first: float) -> Dispersion:
        """One window more, whose squared standardised distance from memory was `ratio`.

        What it was at first counts for `first` windows, and only so many are remembered. The ratio is clipped at
        three deviations: what may be a shift says little about noise.
        """
        gain = 1 / (1 + min(first + self.windows, c.DISPERSION_WINDOWS))
        value = self.value * (1 + gain * (min(ratio, 9.0) - 1))
        return Dispersion(min(max(value, bounds[0]), bounds[1]), min(self.windows + 1, c.DISPERSION_WINDOWS))
