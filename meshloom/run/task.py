"""What a run repeats, and all that the time loop has to know of it.

A ready case is a task; ``ml.march`` makes one of a program and of what a script wants to see of it. The time loop, the
files and the search for the loop in which a solution breaks down know tasks, and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from meshloom.io.field_rows import as_rows
from meshloom.io.rank_rows import AnyRows
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.location import location_of
from meshloom.records import dataclass
from meshloom.run.samples import Sampled, Wishes
from meshloom.run.verdict import Verdict
from meshloom.run.views import Chart, Corners, Image, Picture, SpacePicture


class WantedOutput(Protocol):
    """What a run writes, and how often: iterations between files, 0 where that does not decide."""

    @property
    def vtu(self) -> bool: ...  # fields, as VTK files
    @property
    def every(self) -> int: ...  # between those; one is written at the end in any case
    @property
    def plot(self) -> bool: ...  # pictures, at the end
    @property
    def checkpoint_every(self) -> int: ...
    @property
    def checkpoint_seconds(self) -> float: ...


@dataclass(frozen=True)
class SettingRow:
    """A setting of a run as a person sees it; ``default``: what it is where nobody sets it."""

    key: str
    value: str
    default: str
    meaning: str = ""


@dataclass(frozen=True)
class Point:
    """Where a run stands."""

    iteration: int
    recorded: np.ndarray  # values of the globals ``recorded`` now, (recorded,)
    time: float  # what the files of a series are listed by
    is_last: bool


@dataclass(frozen=True)
class Limit:
    """What a healthy value keeps to; ``why`` says in some words what is wrong with one that does not, ``cure`` what may
    help."""

    above: float = -np.inf
    below: float = np.inf
    why: str = ""
    component: int | None = None  # of a vector, where the limit is not for all of them
    cure: str = ""

    def broken(self, values: np.ndarray) -> np.ndarray:
        """True where a value (n,) or (n, dim) is outside or NaN."""
        inside = (values > self.above) & (values < self.below)
        if self.component is not None:
            others = np.arange(values.shape[-1]) != self.component
            inside = np.where(others, np.isfinite(values), inside)
        return ~inside

    def text(self, value: float) -> str:
        """``-1.2e-05 (must be above 0: the mesh is tangled)``."""
        bounds = [f"above {self.above:.6g}"] if self.above > -np.inf else []
        bounds += [f"below {self.below:.6g}"] if self.below < np.inf else []
        return f"{value:.6g} (must be {' and '.join(bounds)}{': ' if self.why else ''}{self.why})"


@dataclass(frozen=True)
class ResidualStop:
    """The end of a run when a monitor is below a limit, which is looked at after so many iterations. ``relative``: the
    limit counts in units of the monitor's value after the first iteration."""

    monitor: str
    below: float
    relative: bool = False
    every: int = 10

    def limit(self, first: float) -> float:
        """What the monitor must be below, where it was ``first`` after the first iteration."""
        return self.below * abs(first) if self.relative else self.below

    def is_met(self, iteration: int, first: float, now: float) -> bool:
        """Whether the run ends here; never where the monitor is not a number."""
        return iteration > 0 and iteration % self.every == 0 and abs(now) < self.limit(first)

    def text(self, first: float, now: float) -> str:
        """What has been reached, in words."""
        begun = f", {self.below:g} of its first value" if self.relative else ""
        return f"{self.monitor} is {now:.4g}, below {self.limit(first):.4g}{begun}"


class RunTask(ABC):
    """What is repeated; what must be kept of it, and shown; when it ends."""

    if TYPE_CHECKING:  # only read here: a case has them as a class, a script sets them for each

        @property
        def name(self) -> str: ...
        @property
        def monitors(self) -> tuple[str, ...]: ...  # columns of the CSV
        @property
        def shown(self) -> tuple[str, ...] | None: ...  # the monitors to show while it runs; None: all
        @property
        def limits(self) -> Mapping[str, Limit]: ...  # of fields and globals by name; recorded ones are watched
        @property
        def element_name(self) -> str: ...
    else:
        shown, limits, element_name = None, MappingProxyType({}), "elements"

    state: tuple[Field | Global, ...]  # what one iteration hands to the next
    recorded: tuple[Global, ...]  # read after every iteration
    title: ClassVar[str] = ""  # one line on what it is about
    added: frozenset[str] = frozenset()  # of monitors and state what checkpoints of earlier versions lack
    fields_method: ClassVar[str] = "write_fields"  # what a person has written where writing fields fails

    # --- what it is

    @property
    @abstractmethod
    def program(self) -> Any:
        """One iteration: a Program, which may call solvers."""

    @property
    @abstractmethod
    def iterations(self) -> int:
        """The most that there may be, those before a restart included."""

    @property
    @abstractmethod
    def output(self) -> WantedOutput:
        """What to write, and how often."""

    @property
    @abstractmethod
    def elements(self) -> int:
        """Cells, or points of a grid: rates count them."""

    @abstractmethod
    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        """Monitors (n, monitors) from the values (n, recorded) of ``recorded`` after n iterations."""

    @abstractmethod
    def digest(self) -> str:
        """The identity, in checkpoints, of what it lives on."""

    @abstractmethod
    def write_fields(self, stem: Path) -> Path:
        """Write the fields for ParaView; returns the file, which is ``stem`` with an ending."""

    def try_fields(self) -> None:  # noqa: B027  nothing to ask for, unless a task says so
        """Ask for what ``write_fields`` writes, and look at its sizes; ValueError where these are wrong."""

    def settings(self, *, comments: bool = True) -> str:
        """What it was made of, as TOML; '' where nothing is known but the script that made it."""
        return ""

    def setting_rows(self) -> tuple[SettingRow, ...]:
        """What it was made of, one by one."""
        return ()

    def heading(self, folder: Path) -> tuple[str, str]:
        """What the page of a run in a folder is called, and a line below that."""
        return self.name, self.title

    def going_on(self, folder: Path, finished: bool) -> str:
        """What a person does to let the run in a folder go on; '' where it cannot."""
        return ""

    def numbering(self) -> str:
        """How elements lie in memory, in words; '' where that is not said."""
        return ""

    @property
    def precision(self) -> str:
        """The type of its numbers in checkpoints; '' where each field has its own."""
        return ""

    # --- computing

    def advance(self, count: int) -> np.ndarray:
        """So many iterations, or fewer where it ends before: values (n, recorded) of ``recorded`` after each."""
        return self.program.run(count, record=self.recorded)

    def recorded_now(self) -> np.ndarray:
        """The values of the globals ``recorded`` as they are."""
        return np.concatenate([np.empty(0), *(g.numpy().reshape(-1).astype(np.float64) for g in self.recorded)])

    def steps_left(self, recorded: np.ndarray) -> int | None:
        """For a task that ends at a time: iterations that are still to go AT LEAST, 0 when it is finished.

        ``recorded`` holds the values of the globals ``recorded`` now. The runner replays no more than that before it
        asks again, so no step too many is taken. None: it ends after ``iterations``, which is the upper limit in any
        case. What the answer is made of must be part of ``state``, for restarts.
        """
        return None

    def time_span(self, recorded: np.ndarray) -> tuple[float, float] | None:
        """(time now, time at the end) of a task that ends at a time: progress and VTK series go by it."""
        return None

    def beginning(self) -> float:
        """The time at which a task with a ``time_span`` began."""
        return 0.0

    @property
    def has_end(self) -> bool:
        """Does anybody know how long it takes, if nothing ends it before?"""
        return True

    def early_end(self) -> str:
        """What ends a task with a ``time_span`` before its time, such as "steady"; '' where nothing does."""
        return ""

    @property
    def stops_at(self) -> ResidualStop | None:
        """The monitor that ends it, and where; None where none does."""
        return None

    def doubts(self) -> tuple[str, ...]:
        """What there is to say against what it was made of, a line each."""
        return ()

    def cure(self, state: str) -> str:
        """What may help a run whose residual is in a ``state`` of ``meshloom.run.verdict``, or that has broken down;
        '' where nobody knows."""
        return ""

    def verdict(self, history: Mapping[str, np.ndarray]) -> Verdict | None:
        """Whether it has come to its steady state, by the monitors (n,) after every iteration; None: it seeks none."""
        return None

    # --- health

    @property
    def checkpointed(self) -> Mapping[str, Field | Global]:
        """What checkpoints hold, by name: the ``state``."""
        return {one.name: one for one in self.state}

    @property
    def watched(self) -> tuple[Field | Global, ...] | None:
        """What must stay finite next to the monitors; None where these need not be so either."""
        return ()

    def location_of(self, on: Set, element: int) -> str:
        """Which element of a set that is, and where, in words."""
        return location_of(on, element)

    # --- what a person looks at

    @property
    def shows_checkpoints(self) -> bool:
        """Whether fields can be written of what a checkpoint holds, before the first iteration."""
        return True

    def had_fields(self, at: Point, before: Any) -> bool:
        """Whether a run with the settings ``before``, which is gone on with here, was to write fields at that point."""
        return at.is_last or is_due(at.iteration, self.output.every)

    @property
    def wishes(self) -> Wishes:
        """What is measured as it goes: probes, lines, integrals."""
        return Wishes()

    def sampled(self) -> Sampled | None:
        """The fields that can be measured, as they are now; None where there are none."""
        return None

    def coefficients(self) -> Mapping[str, float]:
        """Numbers that tell what has come out so far, such as lift and drag, by name."""
        return {}

    @abstractmethod
    def write_surface(self, stem: Path, groups: tuple[str, ...]) -> Path:
        """Write the faces of boundary groups with the fields on them; returns the file, ``stem`` with an ending."""

    def picture(self) -> Picture | Image | SpacePicture | Chart | None:
        """What to draw at the end."""
        return None

    def maps(self) -> Mapping[str, Picture | Image | SpacePicture]:
        """More to draw at the end: name -> what goes into ``map_<name>.png``."""
        return {}

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Curves to write and draw at the end, from the monitors (n,) after every iteration."""
        return ()

    def drawn_over(self) -> tuple[AnyRows, Corners] | None:
        """What a Picture that brings none is drawn over: points (n, d), and the corners of every cell; None: it has to
        bring them."""
        return None

    def drawn_rows(self, values: Field | AnyRows) -> AnyRows:
        """The values of such a Picture by number; of several ranks each may have its own."""
        return as_rows(values)


def by_global(several: Iterable[Global], values: np.ndarray) -> Iterator[tuple[Global, np.ndarray]]:
    """Globals, each with its own (..., dim) of the values (..., all of them) that were recorded."""
    start = 0
    for one in several:
        yield one, values[..., start : start + one.dim]
        start += one.dim


def is_due(iteration: int, every: int) -> bool:
    """Whether something comes after this iteration that comes after every so many; never where that is 0."""
    return every > 0 and iteration % every == 0


def shortened_text(end: str, now: float) -> str:
    """What is said before a run goes on beyond an ``end`` that its last step was shortened for."""
    return (f"the last step was shortened to end at {end}: from here on steps are not those of a run to {now:g} in one"
            " go, and results agree to the error of the steps, not bit for bit")  # fmt: skip
