"""``ml.march``: run control for scripts. The time loop, its files and its care for them are those of the cases."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from meshloom.errors import UserError, instance, interrupted, shown, whole_number, yes_or_no
from meshloom.io import checkpoint as checkpoints
from meshloom.io.state import by_name
from meshloom.mesh.core import Field, Global
from meshloom.mesh.globals import Condition
from meshloom.operation.call import needs_nothing, with_loops_of_calls
from meshloom.operation.program import Program
from meshloom.operation.run_arguments import check_decides
from meshloom.process.ranks import ranks
from meshloom.recording import refuse_in_program
from meshloom.records import dataclass
from meshloom.run.files import Start
from meshloom.run.folder import SCRIPT, RunFolder, can_go_on, claim, shared
from meshloom.run.report import RunReport, script_report
from meshloom.run.resume import check_fits, put_in
from meshloom.run.resume import history as saved_history
from meshloom.run.runner import Outcome, Runner
from meshloom.run.sampler import check_measured
from meshloom.run.samples import Wishes, integral, line, probe
from meshloom.run.script import (
    MOST_STEPS,
    USUAL_SECONDS,
    Script,
    Until,
    Values,
    Wanted,
    changed_by,
    column_names,
    free_name,
    handed_over,
    unsaid_calls,
    yes,
)
from meshloom.run.times import Profile, TimeTable

T = TypeVar("T")


@dataclass(frozen=True)
class Done:
    """What came out of a run."""

    steps: int  # in all, those before a restart included
    seconds: float  # of this call
    history: dict[str, np.ndarray] = field(repr=False)  # what was shown after every step, (steps,) each
    why: str  # it ended: "steps", "until", "stop", or "signal"
    folder: Path | None  # with its files
    times: TimeTable | None = field(default=None, repr=False)  # where the time of the steps went; as text it is a table


def march(
    program: Program,
    *,
    steps: int | None = None,
    until: tuple[Global, float] | tuple[Global, float, Global] | None = None,
    every: int = 0,
    show: Global | Iterable[Global] | Mapping[str, Global] = (),
    out: str | os.PathLike[str] | None = None,
    fields: Field | Iterable[Field] | Mapping[str, Field] = (),
    checkpoint: Values | Iterable[Values] | Mapping[str, Values] | None = None,
    stop: Condition | Callable[[], Any] | None = None,
    restart: bool = False,
    overwrite: bool = False,
    checkpoint_every: int = 0,
    checkpoint_seconds: float = USUAL_SECONDS,
    watch: bool = True,
    progress: bool | None = None,
    probes: Mapping[str, Any] | None = None,
    lines: Mapping[str, Any] | None = None,
    integrals: Mapping[str, Any] | None = None,
    surface: Iterable[str] = (),
    probe_every: int = 0,
    profile: bool = False,
) -> Done:
    """Run a program step after step, with a progress bar, files, checkpoints and an eye on what is not finite.

    ``steps``: so many in all, or at most so many where something else ends it. ``until=(t, end)``: until the global
    ``t``, which the program advances, has come to ``end``; a program that cuts its last step itself lands there
    exactly. ``until=(t, end, dt)``: the same with a step that only the script sets; the last one is cut, and ``t`` ends
    at ``end`` to the bit. ``stop``: a condition such as ``rms < 1e-8``, checked after every step, or a function of no
    arguments, called after ``every`` steps (each, where that is 0), that says True; it is asked once before the first
    one, whatever it says, so that one that cannot answer is found there.

    ``show``: globals for the bar, for ``monitors.csv`` and for ``history``. ``out``: a folder for the files; without
    one none are written. ``fields``: what goes into the ``fields.pvd`` series, after ``every`` steps and at the end.
    ``checkpoint``: what a step hands to the next; left out, all that the program changes; ``()`` for no checkpoints.
    They come every ``checkpoint_seconds``, after ``checkpoint_every`` steps, at the end, and when a signal stops the
    run. ``restart``: go on from the last one in ``out``, if there is one, to the same end as without the break.
    ``overwrite``: take the place of the run that is there. A value that is not finite, in what is shown or
    checkpointed, ends the run with a RunError that names loop, step and cell; ``watch=False`` leaves it alone.

    What is measured of the ``fields``: ``probes``, {"wake": (1.2, 0.0)}, values at places, in ``probes.csv``;
    ``integrals``, {"heat": "t"} or {"loss": {"of": "t", "over": "wall"}}, in ``integrals.csv``, both after
    ``probe_every`` steps, 10 where that is 0; ``lines``, {"axis": {"from": (0, 0), "to": (1, 0)}}, at the end;
    ``surface``: boundary groups whose faces are written next to the fields.

    Ctrl-C ends the step, writes a checkpoint and raises KeyboardInterrupt, which has a ``done``. ``progress``: the bar
    is there on a terminal; True gives lines elsewhere, too, False nothing. ``profile``: print at the end which loop
    took how long, with its share of the limit, which is measured for that, and put what the loops explain on the page.
    """
    refuse_in_program("marching", "march the outer program")
    began = time.perf_counter()
    task = _task(program, steps, until, every, show, fields, checkpoint, stop, checkpoint_every, checkpoint_seconds,
                 out is not None, watch, _wishes(probes, lines, integrals, surface, probe_every, out))  # fmt: skip
    goes_on, replaces = _beginning(out, restart, overwrite)
    _compare(out, until, steps=steps, every=every, checkpoint_every=checkpoint_every, probe_every=probe_every)
    report = script_report("march", progress)
    profiled = Profile(yes_or_no("march: profile", profile), progress is None or bool(progress))
    return _marched(task, _folder_name(out), report, goes_on, replaces, began, profiled)


def _beginning(out: Any, restart: Any, overwrite: Any) -> tuple[bool, bool]:
    """Whether a run goes on with the one in its folder, and whether it takes its place."""
    goes_on = yes_or_no("march: restart", restart)
    replaces = yes_or_no("march: overwrite", overwrite)
    if goes_on and out is None:
        raise UserError("march: restart=True goes on with the run in a folder; give it, out=...")
    if goes_on and replaces:
        raise UserError("march: restart=True goes on with a run, and overwrite=True replaces it; give one of them")
    return goes_on, replaces


def _compare(out: Any, until: Any, **numbers: int | None) -> None:
    """RankError where ranks were given another folder, or other numbers."""
    end = until if until is None else float(until[1])
    ranks().check_given({"the output folder": out if out is None else str(out), "until": end, **numbers})


def _marched(
    task: Script, place: Path | None, report: RunReport, goes_on: bool, replaces: bool, began: float, profiled: Profile
) -> Done:
    """The run; a folder claimed for one that never began is given back."""
    folder, start = _claimed(task, place, goes_on, replaces)
    try:
        try:
            if start is not None:
                _continue_from(task, start)
                report.message(f"going on from {start.path}, step {start.checkpoint.iteration}")
                if said := task.shortened(saved_history(task, start.checkpoint)):
                    report.message(said)
            task.program.run(0, record=task.recorded)  # compiled here, where it can be stopped without a trace
            runner = Runner(task, folder, report, start, began, profile=profiled.wanted)
        except BaseException:
            if folder is not None:
                folder.abandon()
            raise
        outcome = runner.run()
    finally:
        if folder is not None:
            folder.release()
    profiled.tell(outcome.times)
    return _ended(task, outcome, runner.by_name(), place)


def _ended(task: Script, outcome: Outcome, history: dict[str, np.ndarray], place: Path | None) -> Done:
    """What to give back; a signal that stopped the run does what it does, now that everything is on the disk."""
    why = "signal" if not outcome.finished else "stop" if task.stopped else "steps"
    if why == "steps" and task.until is not None and float(task.until.time) >= task.until.end:
        why = "until"
    done = Done(outcome.iteration, outcome.seconds, history, why, place, outcome.times)
    if outcome.stopped_by == signal.SIGINT:
        kept = f"; go on with restart=True from {place}" if place is not None and task.checkpointed else ""
        raise interrupted(f"march of {task.name}: stopped after step {done.steps}{kept}", done=done)
    if outcome.stopped_by:
        os.kill(os.getpid(), outcome.stopped_by)
    return done


def _claimed(task: Script, place: Path | None, goes_on: bool, replaces: bool) -> tuple[RunFolder | None, Start | None]:
    """The folder, and what there is in it to go on from."""
    if place is None:
        return None, None
    there = goes_on and can_go_on(place)
    folder = shared(claim(task.name, place, overwrite=replaces, goes_on=there, options=SCRIPT), SCRIPT)
    if not there:
        return folder, None
    try:
        return folder, Start(folder.checkpoint, checkpoints.load(folder.checkpoint))
    except BaseException:
        folder.release()
        raise


def _continue_from(task: Script, start: Start) -> None:
    saved = start.checkpoint
    if saved.config:
        raise UserError(f"{start.path}: checkpoint of the case '{saved.case}', not of a script; go on with: meshloom"
                        f" run --restart {start.path}")  # fmt: skip
    if not task.checkpointed:
        raise UserError(f"{start.path}: there is nothing to put it into; give checkpoint=(u, ...)")
    extra = [name for name in saved.state if name not in task.checkpointed]
    if saved.iteration > task.iterations:
        raise UserError(f"{start.path}: already at step {saved.iteration} of {task.iterations}; give more steps")
    if extra:
        raise UserError(f"{start.path}: the checkpoint holds {', '.join(extra)}, too, and this run has no such field or"
                        " global; give the same checkpoint=")  # fmt: skip
    check_fits(task, start)
    if saved.mesh != task.digest():
        raise UserError(f"{start.path}: checkpoint of another mesh or grid (digest {saved.mesh[:12]}, this one"
                        f" {task.digest()[:12]})")  # fmt: skip
    if problem := task.is_past(saved_history(task, saved)):
        raise UserError(f"{start.path}: {problem}")
    put_in(task, start)
    if saved.iteration:
        task.resumed(saved.iteration, saved.monitors[-1])


# ----- what a script gives ------------------------------------------------------------------------------------------
def _task(
    program: Any, steps: Any, until: Any, every: Any, show: Any, fields: Any, checkpoint: Any, stop: Any,
    checkpoint_every: Any, checkpoint_seconds: Any, writes: bool, watch: Any, wishes: Wishes | None,
) -> Script:  # fmt: skip
    """Everything checked before anything starts."""
    _check_program(program)
    if steps is None and until is None and stop is None:
        raise UserError("march: how long? give steps=1000, until=(t, end) or stop=rms < 1e-8")
    most = MOST_STEPS if steps is None else whole_number("march: steps", steps, 1, MOST_STEPS)
    listed = _named("fields", fields, Field)
    wanted = Wanted(
        vtu=writes and bool(listed),
        every=whole_number("march: every", every, 0, MOST_STEPS),
        checkpoint_every=whole_number("march: checkpoint_every", checkpoint_every, 0, MOST_STEPS),
        checkpoint_seconds=_seconds(checkpoint_seconds),
        plot=wishes is not None and bool(wishes.tracks),
    )
    shown_globals = _named("show", show, Global)
    columns = [name for key, one in shown_globals.items() for name in column_names(key, one)]
    if len(set(columns)) < len(columns):
        raise UserError(f"march: two columns of show would be called '{max(columns, key=columns.count)}'")
    end, kept = _until(program, until), _kept(program, checkpoint, writes)
    watches = yes_or_no("march: watch", watch)
    task = Script(program, most, end, _stop(program, stop), shown_globals, listed, kept, wanted, watch=watches,
                  wishes=wishes)  # fmt: skip
    if wishes is not None:
        check_measured(task)
    return task


def _wishes(probes: Any, lines: Any, integrals: Any, surface: Any, every: Any, out: Any) -> Wishes | None:
    """What is to be measured; None where nothing is."""
    try:
        groups = (surface,) if isinstance(surface, str) else tuple(surface)
    except TypeError:
        groups = (None,)
    if not all(isinstance(one, str) for one in groups):
        raise UserError(f"march: surface takes names of boundary groups, got {shown(surface)}")
    rows = whole_number("march: probe_every", every, 0, MOST_STEPS)
    found = Wishes(_read("probes", probes, probe), _read("lines", lines, line), _read("integrals", integrals, integral),
                   groups, rows)  # fmt: skip
    if not found:
        return None
    if out is None:
        raise UserError("march: what is measured goes into files; give a folder, out=...")
    return found


def _read(what: str, given: Any, made: Callable[[Any], T]) -> dict[str, T]:
    """Wishes by name, each as ``made`` reads it."""
    if given is not None and not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
        raise UserError(f"march: {what} takes names and what they stand for, got {shown(given)}")
    found = {}
    for name, one in (given or {}).items():
        try:
            found[name] = made(one)
        except ValueError as error:
            raise UserError(f"march: {what} '{name}' {error}") from None
    return found


def _check_program(program: Any) -> None:
    if isinstance(program, Program) and program.parameters.names:
        raise UserError(f"march: program {program.name} takes arguments: give {program.name}.bind(...)")
    if not isinstance(program, Program):
        how = "; decorate it with @ml.program, or have it called: ml.program(lambda: ml.call(f))"
        raise UserError(f"march: expected a program, got {shown(program)}{how if callable(program) else ''}")


def _until(program: Program, given: Any) -> Until | None:
    if given is None:
        return None
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise UserError(f"march: until takes (t, end) or (t, end, dt), got {shown(given)}")
    clock, end, step = given[0], given[1], given[2] if len(given) == 3 else None
    _check_number("time", clock)
    if step is not None:
        _check_number("step", step)
    if isinstance(end, bool) or not isinstance(end, int | float | np.number) or not math.isfinite(end):
        raise UserError(f"march: the end of until must be a finite number, got {shown(end)}")
    written = changed_by(program)
    if not unsaid_calls(program) and not any(one is clock for one in written):
        raise UserError(f"march: program {program.name} never sets {clock.name}, so it would not come to {end:g}")
    if step is not None and any(one is step for one in written):
        raise UserError(f"march: {program.name} sets the step {step.name} itself, so it must cut it, too, as in"
                        f" np.minimum(dt, end - t); give until=({clock.name}, {end:g})")  # fmt: skip
    with np.errstate(over="ignore"):
        reached = float(np.asarray(end, clock.dtype))  # float32 has no 0.7, and would never come to it
    if not math.isfinite(reached):
        raise UserError(f"march: the end of until is {end:g}, more than the {clock.dtype} of {clock.name} holds")
    found = Until(clock, reached, step)
    found.sure(float(clock))  # which looks at the step
    return found


def _check_number(what: str, one: Any) -> None:
    instance(f"march: the {what} of until", one, Global)
    if one.dim != 1 or one.dtype.kind != "f":
        raise UserError(f"march: the {what} of until is one floating number, {one.name} is {one.dim} of {one.dtype}")


def _stop(program: Program, given: Any) -> Any:
    if isinstance(given, Condition) and not unsaid_calls(program):
        check_decides(program.name, given, changed_by(program))
    if given is None or isinstance(given, Condition):
        return given
    if isinstance(given, bool | Program) or not callable(given):
        raise UserError(f"march: stop takes a condition such as rms < 1e-8, or a function, got {shown(given)}")
    if not needs_nothing(given):
        raise UserError("march: the function stop is called without arguments, and takes some")
    yes(given())  # whatever it says: can it answer?
    return given


def _kept(program: Program, given: Any, writes: bool) -> dict[str, Values]:
    """What checkpoints hold. UserError where a run that goes on from one would not be the same."""
    unknown = [one for one in unsaid_calls(program) if not with_loops_of_calls([one])]
    if given is None:
        if unknown and writes:
            raise UserError(f"march: program {program.name} calls {unknown[0].name}, which does not say what it"
                            " changes; give writes=(u, ...) to its ml.call, or checkpoint=(u, ...), what a step hands"
                            " to the next, or () for none")  # fmt: skip
        return _by_some_name(changed_by(program))
    kept = _named("checkpoint", given, Values)
    for name, one in kept.items():
        if isinstance(one, Field) and one.temporary:
            raise UserError(f"march: field {name} is temporary, so it has nothing to keep; leave it out of checkpoint")
    missing = [one.name for one in handed_over(program) if not any(one is known for known in kept.values())]
    if kept and missing:
        raise UserError(f"march: checkpoint lacks {', '.join(missing)}, which a step reads before it writes it: a run"
                        " that goes on would do so with another value; add it")  # fmt: skip
    return kept


def _by_some_name(values: Iterable[Values]) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for one in values:
        found[free_name(one.name, found)] = one
    return found


def _named(what: str, given: Any, kind: Any) -> dict[str, Any]:
    """One, several, or several by name."""
    if isinstance(given, Mapping | Field | Global):
        given = (given,)
    try:
        several = None if isinstance(given, str) else tuple(given)
    except TypeError:  # also of what only looks as if there was something in it
        several = None
    if several is None:
        raise UserError(f"march: {what} takes a tuple, or names and what they stand for, got {shown(given)}")
    return by_name(f"march: {what}", several, what=kind)


def _seconds(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0.0:
        raise UserError(f"march: checkpoint_seconds must be a number from 0, got {shown(given)}")
    return float(given)


def _folder_name(out: Any) -> Path | None:
    if out is not None and not isinstance(out, str | os.PathLike):
        raise UserError(f"march: out is the path of a folder, got {shown(out)}")
    return None if out is None else Path(out)
