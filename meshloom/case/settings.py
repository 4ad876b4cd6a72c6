"""The sections of settings that all cases share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields, make_dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.case.schedules import schedule_table
from meshloom.config import described, option, section, table
from meshloom.errors import ConfigError, nearest
from meshloom.records import dataclass
from meshloom.run.samples import USUAL_EVERY, Wishes, integral, line, probe
from meshloom.run.task import SettingRow
from meshloom.toml import toml_shown

MOST_ITERATIONS = 10**9
_LONGEST_VALUE = 400  # letters of a setting on a page
PRECISIONS: dict[str, np.dtype[Any]] = {"double": np.dtype(np.float64), "single": np.dtype(np.float32)}


@dataclass(frozen=True)
class StopOptions:
    """When to end before the last iteration."""

    monitor: str = option("", "the monitor that ends the run, one of the columns of monitors.csv; empty: none does")
    below: float = option(0.0, "it ends when that is below this number", low=0.0)
    relative: bool = option(False, "the number counts in units of the monitor's value after the first iteration")
    every: int = option(10, "iterations between looking at it", low=1, high=MOST_ITERATIONS)


def idle(stop: StopOptions | None) -> list[str]:
    """What is set of a stop that no monitor is named for."""
    if stop is None or stop.monitor:
        return []
    return [one.name for one in fields(StopOptions) if getattr(stop, one.name) != getattr(StopOptions(), one.name)]


@dataclass(frozen=True)
class RunOptions:
    """How long and on what to run."""

    iterations: int = option(1000, "iterations in all, those before a restart included", low=1, high=MOST_ITERATIONS)
    backend: str = option(
        "auto",
        "what executes the loops; auto takes cuda with a GPU, else cpu with a C++ compiler, else numpy",
        allowed=lambda: ("auto", *ml.backends(ask=False)),
    )
    precision: str = option("double", "type of the numbers in all fields", allowed=tuple(PRECISIONS))
    threads: int = option(0, "threads of the cpu back end; 0 takes OMP_NUM_THREADS, or all cores", low=0, high=4096)
    reproducible: bool = option(False, "sums over elements, such as residuals, have the same bits in any order")
    partition: str = option(
        ml.partitioners()[0],
        "how the cells of a mesh are cut over ranks, by a partitioner or by the rank of each cell in a file of"
        " numpy.save; without ranks it does nothing",
        allowed=ml.partitioners,
        path=".npy",
    )
    stop: StopOptions = section(StopOptions, "When to end before the last iteration: at a residual.")


@dataclass(frozen=True)
class OutputOptions:
    """What to write, and how often."""

    vtu: bool = option(True, "write the fields as VTK files (.vtu; of a grid .vti or .vtr) with a .pvd series")
    every: int = option(0, "iterations between VTK files; 0 writes one at the end", low=0, high=10**9)
    pieces: bool = option(
        False, "each rank writes the fields of its own elements, and a .pvtu, .pvti or .pvtr file lists the files"
    )
    plot: bool = option(True, "draw a PNG at the end (needs matplotlib)")
    checkpoint_every: int = option(0, "iterations between checkpoints; 0 goes by the clock alone", low=0, high=10**9)
    checkpoint_seconds: float = option(60.0, "seconds between checkpoints; 0 goes by iterations alone", low=0.0)
    probe_every: int = option(
        0,
        f"iterations between rows of probes.csv and integrals.csv; 0: {USUAL_EVERY} where [probes] or [integrals] names"
        " something, else one row at the end",
        low=0,
        high=10**9,
    )
    surface: tuple[str, ...] = option((), "boundary groups whose faces, with the fields on them, get VTK files as well")


def _entry(made: Callable[[Any], object]) -> Callable[[str, Any], None]:
    """The check of a table whose entries are what ``made`` takes."""
    return lambda name, value: (made(value), None)[1]


def measuring(config: type) -> type:
    """The settings of a case with the tables of what is measured, which every case has."""
    if hasattr(config, "__measures__") or not isinstance(config, type):  # which is refused where cases are checked
        return config
    tables = (
        ("probes", table("Values at places, in probes.csv: name = [x, y], or {at = [x, y], fields = [\"mach\"]} for"
                         " some fields alone.", _entry(probe))),
        ("lines", table("Values along lines, at the end: name = {from = [x, y], to = [x, y], points = 200, fields ="
                        " [\"mach\"]}.", _entry(line))),
        ("integrals", table("Integrals of fields, in integrals.csv: name = \"pressure\", or {of = \"pressure\", over ="
                            " \"wall\", normal = true} over a region or boundary group.", _entry(integral))),
    )  # fmt: skip
    taken = {one.name for one in fields(config)}
    new = [(name, dict[str, Any], value) for name, value in tables if name not in taken]
    made = make_dataclass(config.__name__, new, bases=(config,), frozen=True, namespace={"__measures__": True})
    made.__module__, made.__doc__, made.__qualname__ = config.__module__, config.__doc__, config.__qualname__
    return made


def with_measuring(config: Any) -> Any:
    """The same settings with these tables, where a script has made them without."""
    kind = measuring(type(config))
    return config if kind is type(config) else kind(**{one.name: getattr(config, one.name) for one in fields(config)})


def wishes_of(config: Any) -> Wishes:
    """What these tables, and the output, ask for."""
    asked = {name: getattr(config, name, {}) for name in ("probes", "lines", "integrals")}
    return Wishes(
        probes={name: probe(one) for name, one in asked["probes"].items()},
        tracks={name: line(one) for name, one in asked["lines"].items()},
        integrals={name: integral(one) for name, one in asked["integrals"].items()},
        surface=getattr(config.output, "surface", ()),
        every=getattr(config.output, "probe_every", 0),
    )


@dataclass(frozen=True)
class _OtherDefaults:
    values: dict[str, Any]


def defaults(**values: Any) -> Any:
    """In the body of a class of settings: a section that it inherits, with these defaults instead of the family's."""
    return _OtherDefaults(values)


class FamilyConfig:
    """The settings of a family of cases. A case of it names what differs, ``time = defaults(end=0.5)``: the type of a
    section, what is said of it and its place among the others are those of the family."""

    def __init_subclass__(cls) -> None:
        known: dict[str, Any] = {}
        for kind in reversed(cls.__mro__):
            known |= vars(kind).get("__dataclass_fields__", {})
        sections = {name: one for name, one in known.items() if one.default_factory not in (MISSING, dict)}
        for name, given in [(name, one) for name, one in vars(cls).items() if isinstance(one, _OtherDefaults)]:
            _check_named(f"{cls.__name__}: {name} = defaults(...)", "section", name, sections)
            usual = sections[name].default_factory()
            for one in given.values:
                _check_named(f"{cls.__name__}: {name} = defaults({one}=...)", "option", one, vars(usual))
            cls.__annotations__[name] = type(usual)
            setattr(cls, name, field(default_factory=partial(replace, usual, **given.values),
                                     metadata=sections[name].metadata))  # fmt: skip


def _check_named(where: str, what: str, name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        raise ConfigError(f"{where}: the family has no such {what}{nearest(name, known)}")


@dataclass(frozen=True)
class CaseConfig(FamilyConfig):
    """The settings that every case has: derive yours from it, with sections of your own."""

    run: RunOptions = section(RunOptions, "How long, and on what.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("name_of_a_loop")


def order_option() -> Any:
    """How the mesh of a case lies in memory, an option of its [mesh]: see ``Mesh.arranged``."""
    return option(
        "auto",
        "how the mesh lies in memory, which only matters for speed; auto renumbers it if it comes in a bad order;"
        " all output keeps your numbering",
        allowed=lambda: ("auto", *ml.orderings()),
    )


def setting_rows(config: Any) -> tuple[SettingRow, ...]:
    """Every setting of a configuration as a person sees it, with its default and its meaning."""
    return tuple(
        SettingRow(key, toml_shown(value, _LONGEST_VALUE), toml_shown(usual, _LONGEST_VALUE), doc)
        for key, value, usual, doc in described(config)
    )
