"""Four pools of water: a lake at rest, a breaking dam, water that swings in a bowl, and a hump that spreads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from meshloom.case import defaults
from meshloom.config import option, section
from meshloom.solvers.exact_water import Stoker, Thacker
from meshloom.solvers.volna.basins import Region, WaterCase, WaterConfig

# --- a dam breaks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DamOptions:
    """A channel with a dam across it."""

    length: float = option(10.0, "length of the channel, m", above=0.0)
    width: float = option(2.0, "width of the channel, m", above=0.0)
    at: float = option(5.0, "where the dam stands, m from the left end", above=0.0)
    left: float = option(2.0, "depth on its left, m", low=0.0)
    right: float = option(1.0, "depth on its right, m", low=0.0)


@dataclass(frozen=True)
class DambreakConfig(WaterConfig):
    time = defaults(end=0.5)
    dam: DamOptions = section(DamOptions, "The dam, gone at time 0.")


class Dambreak(WaterCase):
    """A dam that is gone at time 0, with deep water on its left; ``exact`` is the solution of Stoker."""

    name: ClassVar[str] = "volna_dambreak"
    title: ClassVar[str] = "a dam breaks in a wet channel (shallow water, finite volumes; Volna)"
    Config: ClassVar[type] = DambreakConfig

    @property
    def region(self) -> Region:
        return 0.0, self.config.dam.length, 0.0, self.config.dam.width

    def bed(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.full_like(x, -self.config.dam.right)

    def surface(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        dam = self.config.dam
        return np.where(x < dam.at, dam.left - dam.right, 0.0)

    @property
    def exact(self) -> Stoker:
        return Stoker(self.config.dam.left, self.config.dam.right, self.config.flow.gravity)


# --- a lake at rest ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LakeOptions:
    """A square lake with a mound under water."""

    size: float = option(10.0, "size of the square, m", above=0.0)
    depth: float = option(1.0, "away from the mound, m", above=0.0)
    mound: float = option(0.8, "height of the mound, m", low=0.0)


@dataclass(frozen=True)
class LakeConfig(WaterConfig):
    mesh = defaults(nx=20, ny=20)
    lake: LakeOptions = section(LakeOptions, "The lake.")


class Lake(WaterCase):
    """Still water over a mound: nothing may happen."""

    name: ClassVar[str] = "volna_lake"
    title: ClassVar[str] = "a lake at rest over a mound: nothing happens (shallow water; Volna)"
    Config: ClassVar[type] = LakeConfig

    @property
    def region(self) -> Region:
        return 0.0, self.config.lake.size, 0.0, self.config.lake.size

    def bed(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        lake = self.config.lake
        return -lake.depth + lake.mound * np.exp(-((x - 0.5 * lake.size) ** 2) - (y - 0.5 * lake.size) ** 2)

    def surface(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.zeros_like(x)


# --- water in a bowl --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BowlOptions:
    """A paraboloid in the middle of a square."""

    half_width: float = option(2.0, "half the size of the square, m", above=0.0)
    depth: float = option(0.1, "depth of the still water in the middle, m", above=0.0)
    radius: float = option(1.0, "radius of the still water, m", above=0.0)
    start: float = option(0.8, "radius of the heap of water at the start, m", above=0.0)


@dataclass(frozen=True)
class ThackerConfig(WaterConfig):
    mesh = defaults(nx=40, ny=40)
    time = defaults(end=Thacker().period)
    bowl: BowlOptions = section(BowlOptions, "The bowl.")


class Bowl(WaterCase):
    """Water that swings in a bowl, up and down its dry slopes; ``exact`` is the solution of Thacker."""

    name: ClassVar[str] = "volna_thacker"
    title: ClassVar[str] = "water swings in a bowl with dry slopes (shallow water; Volna)"
    Config: ClassVar[type] = ThackerConfig

    @property
    def region(self) -> Region:
        half = self.config.bowl.half_width
        return -half, half, -half, half

    @property
    def exact(self) -> Thacker:
        bowl = self.config.bowl
        return Thacker(bowl.depth, bowl.radius, bowl.start, self.config.flow.gravity)

    def bed(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.exact.bed(x, y)

    def surface(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.exact.surface(x, y, 0.0)


# --- a hump spreads ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HumpOptions:
    """A round hump of water in a long pool."""

    length: float = option(180.0, "length of the pool, m", above=0.0)
    width: float = option(60.0, "width of the pool, m", above=0.0)
    depth: float = option(1.0, "depth of the still water, m", above=0.0)
    height: float = option(0.3, "height of the hump, m", low=0.0)
    radius: float = option(10.0, "where the hump is 1/e of its height, m", above=0.0)
    at: float = option(60.0, "where its middle is, m from the left end", low=0.0)


@dataclass(frozen=True)
class HumpConfig(WaterConfig):
    mesh = defaults(nx=180, ny=60)
    time = defaults(end=5.0)
    hump: HumpOptions = section(HumpOptions, "The pool and the hump.")


class Hump(WaterCase):
    """A hump of water that spreads as a ring."""

    name: ClassVar[str] = "volna_hump"
    title: ClassVar[str] = "a hump of water spreads in a pool (shallow water; Volna)"
    Config: ClassVar[type] = HumpConfig

    @property
    def region(self) -> Region:
        hump = self.config.hump
        return 0.0, hump.length, -0.5 * hump.width, 0.5 * hump.width

    def bed(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.full_like(x, -self.config.hump.depth)

    def surface(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        hump = self.config.hump
        return hump.height * np.exp(-((x - hump.at) ** 2 + y**2) / hump.radius**2)
