"""From what a person asked for to a case that is ready to run: every check before anything starts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.backend import ENVIRONMENT_THREADS, USUAL_THREADS, automatic_backend, current
from meshloom.backend.compiling import compiled_meanwhile
from meshloom.backend.machine import backend_text
from meshloom.case import Case, RunOptions, UnknownLoop, loops_text
from meshloom.case.settings import idle, setting_rows, wishes_of
from meshloom.catalogue import case_names, check_made, find, names_a_case, names_a_file
from meshloom.config import Setting, build, flatten, parse_settings, read_settings
from meshloom.errors import ConfigError, MeshloomError, RunError, UserError, nearest, one_line, shown
from meshloom.io import checkpoint as checkpoints
from meshloom.io.checkpoint import Checkpoint
from meshloom.process.activity import busy
from meshloom.process.ranks import by_root, on_root, ranks
from meshloom.records import dataclass
from meshloom.run.files import Start
from meshloom.run.folder import COMMAND, Options, RunFolder, claim, recover, shared
from meshloom.run.names import CHECKPOINT, CONFIG
from meshloom.run.partition import naming_partition, read_partition
from meshloom.run.place import one_line_for
from meshloom.run.rehearsal import rehearse
from meshloom.run.report import RunReport
from meshloom.run.resume import put_in
from meshloom.run.runner import Outcome, Runner
from meshloom.run.sampler import Sampler, check_measured
from meshloom.toml import toml_key, toml_shown

CASE, CASE_TEXT = ("case",), ("case_sha256",)  # the keys that name it in a file, and the text of its own file
_LONG_TO_COMPILE = 2000  # operations of a loop; no loop of the cases here has 1,400
_ABSENT = object()
FIRST_CASE = "airfoil"  # what somebody who names none is shown


@dataclass(frozen=True)
class Request:
    """What to run: a case's name, the Python file that it is in, or a TOML file; changes to it, and where to write."""

    target: str | type[Case] | None  # None: the case of the checkpoint
    changes: tuple[Setting, ...] = ()
    out: Path | None = None
    restart: Path | None = None
    overwrite: bool = False
    finish: bool = False  # what a run leaves at its end, from the checkpoint ``restart``, without iterating
    profile: bool = False  # measure what the time by loop is compared with, and let the loops explain themselves
    changed: bool = False  # go on although the file of the case has changed


@dataclass(frozen=True)
class Job:
    """A checked request."""

    case: type[Case]
    config: Any
    start: Start | None
    changed: tuple[str, ...] = ()  # "run.iterations 20 -> 40": what a restart does differently
    settings: tuple[Setting, ...] = ()  # what was asked for, the last word on each key last
    finish: bool = False
    profile: bool = False


def check(request: Request) -> Job:
    """The case and its whole configuration, from defaults or checkpoint, then the file, then the changes; RankError
    where ranks were given other ones."""
    ranks().check_given({"the run to go on with": request.restart and str(request.restart)})
    job = _checked(request)
    own = job.case.source
    ranks().check_given({"the case": job.case.name, "the text of its file": own and own.sha256[:16],
                         "the output folder": request.out and str(request.out), **flatten(job.config)})  # fmt: skip
    return job


def _checked(request: Request) -> Job:
    path = _in_folder(request.restart) if request.restart else None
    identity, saved = _load(path) if path else ((), None)
    old = parse_settings(saved.config, str(path), path.parent) if path and saved else []
    case, settings = _target(request.target, path, old)
    settings = [*settings, *request.changes]
    if path is None or saved is None:
        return Job(case, build(case.Config, settings), None, settings=tuple(settings), profile=request.profile)
    if saved.case != case.name:
        raise UserError(f"{path}: checkpoint of case '{saved.case}', not of '{case.name}'")
    if not request.changed and (problem := _changed_text(case, old)):
        raise UserError(f"{path}: {problem}; give --changed (in Python changed=True) to go on with it as it is now")
    before: Any = build(case.Config, _without_case(old), old=True)
    config, start = build(case.Config, settings, before), Start(path, saved, before, identity)
    _check_restart(start, config)
    return Job(case, config, start, _differences(before, config), tuple(settings), request.finish, request.profile)


def _changed_text(case: type[Case], settings: Sequence[Setting]) -> str:
    """What to say where settings were written with another text of the file of their case; '' where it is the same."""
    known = [setting.value for setting in settings if setting.key == CASE_TEXT]
    if case.source is None or not known or known[-1] == case.source.sha256:
        return ""
    return f"{case.source.path} has changed since this was written"


def checkpoint_of(run: Path) -> Path:
    """The checkpoint of a run, which is named by its folder or by its checkpoint."""
    if (found := _in_folder(run)) is not run:
        return found
    if os.path.exists(run) and run.name != CHECKPOINT:
        raise UserError(f"{run}: not a run; give its folder or its {CHECKPOINT}")
    if not os.path.exists(run) and run.suffix != ".h5":
        raise UserError(f"{run}: no such folder; give the folder of a run or its {CHECKPOINT}")
    return run


def _in_folder(path: Path) -> Path:
    """The checkpoint of the run in a folder; what is no folder itself."""
    return path / CHECKPOINT if os.path.isdir(path) else path  # of a Path, it fails for names that are too long


def _load(path: Path) -> tuple[tuple[int, ...], Checkpoint]:
    """A checkpoint and which file that is. The last one of a run is not there before the run, which may have been
    killed, is in order."""
    if path.name == CHECKPOINT:
        recover(path.parent)
    identity, saved = on_root(lambda: _identity(path)), checkpoints.load(path)
    if not saved.config:
        raise UserError(f"{path}: checkpoint of a script; go on with ml.march(..., restart=True) in that script")
    return identity, saved


def _identity(path: Path) -> tuple[int, ...]:
    """Another one for a file that another run has put there; () where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _target(
    target: str | type[Case] | None, path: Path | None, old: Sequence[Setting]
) -> tuple[type[Case], list[Setting]]:
    """The case that a name, a file or a checkpoint (at ``path``, with the settings ``old``) stands for, and the
    settings of a TOML file."""
    if target is None:
        if path is None:
            raise UserError(f"which case? give a name or a TOML file: meshloom run {FIRST_CASE}; see meshloom cases")
        return _named(old, str(path)), []
    if not isinstance(target, str):
        return target, []
    if names_a_file(target) or names_a_case(target):
        return find(target), []
    file = Path(target)
    if file.suffix != ".toml" and not os.path.isfile(file):  # of a Path, it fails for names that are too long
        raise UserError(f"unknown case {shown(target)}{nearest(target, case_names())}")
    return load_case_file(file)


def load_case_file(path: Path) -> tuple[type[Case], list[Setting]]:
    """The case named at the top of a TOML file, and the file's other settings."""
    settings = read_settings(path)
    case = _named(settings, str(path))
    if problem := _changed_text(case, settings):
        warnings.warn(f"{path}: {problem}", stacklevel=2)
    return case, _without_case(settings)


def _named(settings: Sequence[Setting], name: str) -> type[Case]:
    """The case that settings, of a file of that ``name``, name themselves; a Python file lies next to theirs."""
    named = [setting for setting in settings if setting.key == CASE]
    if not named:
        raise ConfigError(f'{name}: no case is named; put a line such as case = "{FIRST_CASE}" at the top')
    value, where = named[0].value, named[0].where
    if not isinstance(value, str):
        raise ConfigError(f"{where}: case must be a name; allowed: {', '.join(case_names())}")
    return find(value, f"{where}: ", named[0].base)


def _without_case(settings: Sequence[Setting]) -> list[Setting]:
    return [setting for setting in settings if setting.key not in (CASE, CASE_TEXT)]


def _check_restart(start: Start, config: Any) -> None:
    """A restart may change much, but not what the numbers in the checkpoint mean."""
    saved = start.checkpoint
    if saved.precision != config.run.precision:
        raise UserError(f"{start.path}: checkpoint in {saved.precision} precision; give --precision {saved.precision}")
    if saved.iteration > config.run.iterations:
        raise UserError(f"{start.path}: already at iteration {saved.iteration} of {config.run.iterations};"
                        " give more with --iterations")  # fmt: skip


def _differences(before: Any, after: Any) -> tuple[str, ...]:
    """``mesh.i 20 -> 40`` for every setting that differs; of tables, for every entry that does."""
    old, new = flatten(before), flatten(after)
    return tuple(one_line(text) for key in new for text in _changes(key, old[key], new[key]))


def _changes(key: str, old: Any, new: Any) -> Iterator[str]:
    """What differs between two values; ``_ABSENT`` stands for an entry that a table lacks."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old | new:
            yield from _changes(f"{key}.{toml_key((name,))}", old.get(name, _ABSENT), new.get(name, _ABSENT))
    else:
        texts = ["(none)" if value is _ABSENT else toml_shown(value) for value in (old, new)]
        if texts[0] == texts[1] and isinstance(old, str) and isinstance(new, str):  # long, and alike at first
            same = next((k for k, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), len(old))
            texts = [f"...{toml_shown(value[max(0, same - 10) :])}" for value in (old, new)]
        yield f"{key} {' -> '.join(texts)}"


def folder_for(request: Request, job: Job, options: Options = COMMAND) -> RunFolder:
    """Claim the output folder, which all ranks must see: a restart goes on in the folder of its checkpoint unless
    ``out`` says otherwise. A case that does not run on them gets none."""
    job.case.check_ranks()
    return shared(_claimed(request, job, options), options)


@by_root
def _claimed(request: Request, job: Job, options: Options) -> RunFolder:
    out = request.out
    # Only the run's own last checkpoint: going on from an older copy would drop what came after it.
    if job.start is not None and job.start.path.name == CHECKPOINT:
        home = job.start.path.parent
        if out is None and (request.finish or (home / CONFIG).is_file()):
            out = home
        if out is not None and out.resolve() == home.resolve():
            folder = claim(job.case.name, out, goes_on=True, options=options)
            if _identity(job.start.path) != job.start.identity:
                folder.release()
                raise UserError(f"{job.start.path} has changed since it was read: another run was here; try again")
            return folder
    return claim(job.case.name, out, overwrite=request.overwrite, options=options)


def set_up(job: Job) -> Case:
    """The case, built on the back end that it asks for; a restart's state is put in."""
    with naming_partition(job.config.run.partition):
        _choose_backend(job.config.run)
        case = _made(job.case, job.config)
        check_made(case)
        _check_partition(case, job.config.run)
    _check_schedules(job, case)
    if job.start is not None:
        _continue_from(case, job.start)
    return case


def _made(kind: type[Case], config: Any) -> Case:
    """The case with that configuration. Values that are allowed one by one may still not go together in arithmetic."""
    try:
        with np.errstate(all="ignore"):  # what is not finite is found in the first iteration, with loop and cell
            return kind(config)
    except ArithmeticError as error:
        if kind.own_file() is not None:  # whose line is told
            raise
        changed = _differences(kind.Config(), config)
        raise UserError(f"{kind.name}: nothing can be computed with these settings ({error}); different from"
                        f" the default: {', '.join(changed) or 'nothing'}") from error  # fmt: skip


def _choose_backend(options: RunOptions) -> None:
    """The one asked for; where ``auto`` comes down to numpy, it says why."""
    name = options.backend
    if name == "auto":
        found = ml.backends()
        name = automatic_backend(found)
        if name == "numpy":
            # A warning, which --quiet does not hide.
            warnings.warn(f"the numpy back end is used, which is slow: {found['cpu']}", stacklevel=2)
    ml.use(name, threads=options.threads or USUAL_THREADS, reproducible=options.reproducible,
           partition=_partition_of(options))  # fmt: skip


def _partition_of(options: RunOptions) -> str | np.ndarray:
    """What ``run.partition`` says: a name, or what is in the file that it names, which nobody needs without ranks."""
    said = options.partition
    if said in ml.partitioners():
        return said
    return read_partition(Path(said), "run.partition = ") if ml.world.size > 1 else ml.partitioners()[0]


def _check_partition(case: Case, options: RunOptions) -> None:
    """UserError where a file has no rank for each cell; nothing has been run yet."""
    if ml.world.size == 1 or options.partition in ml.partitioners():
        return
    if case.partitioned is None:
        raise ConfigError(f"run.partition = {options.partition}: case '{case.name}' has no mesh whose cells could be"
                          " given to ranks")  # fmt: skip
    _ = case.partitioned.mine


def _check_schedules(job: Job, case: Case) -> None:
    """What [schedule] names must be a loop, and what was asked for must be able to run it; what is chosen can."""
    try:
        program = case.program
    except UnknownLoop as error:
        asked = [s.where for s in job.settings if s.key[: len(error.key)] == error.key[: len(s.key)]]
        place = asked[-1] if asked else job.start.path if job.start else None
        raise ConfigError(f"{place}: {error}" if place else str(error)) from None
    for loop in program.loops:
        if loop.domain.visits_elements and loop.wish != ml.Schedule() and not loop.applies:
            raise UserError(f"schedule.{loop.name}: strategy '{loop.schedule.strategy}' cannot run it: {loop.reason}")


def schedule_remark(job: Job) -> str:
    """Which loops there are for [schedule] to name: asked of the case, set up as small as it goes.

    On numpy, which compiles nothing; but loops may depend on whether there is a GPU.
    """
    small = [Setting(tuple(key.split(".")), value, f"{job.case.name}.small") for key, value in job.case.small.items()]
    wanted = job.config.run.backend
    used = automatic_backend(ml.backends()) if wanted == "auto" else wanted
    try:
        with ml.using("cuda" if used == "cuda" else "numpy"), one_line_for(job.case.own_file(), UserError):
            return loops_text(_made(job.case, build(job.case.Config, small, job.config)).loop_names)
    except MeshloomError:  # settings that do not fit together are for a run to refuse
        return "The run.toml of a run lists the loops."


def may_miss(job: Job) -> bool:
    """Whether it names what only the case, set up, can tell to be there: places, fields, groups, monitors."""
    stop = getattr(job.config.run, "stop", None)
    return bool(wishes_of(job.config)) or bool(stop is not None and (stop.monitor or idle(stop)))


def measured_by(job: Job) -> Sampler | None:
    """What its run would measure, asked of the case on numpy, which compiles nothing; None where the case cannot be set
    up, which is for its run to tell. UserError where it wishes for what is not there."""
    with ml.using("numpy"):
        try:
            with one_line_for(job.case.own_file(), UserError):
                case = _made(job.case, job.config)
        except (MeshloomError, MemoryError):
            return None
        with one_line_for(job.case.own_file(), UserError):
            return check_measured(case)


def recorded_loops(job: Job) -> tuple[Case, tuple[ml.Operation, ...]]:
    """The case, set up on numpy, which compiles nothing, and the loops of its program: to look at, not to run."""
    with busy(f"{job.case.name}: setting up"), ml.using("numpy"), one_line_for(job.case.own_file(), UserError):
        case = _made(job.case, job.config)
        check_made(case)
        return case, case.program.loops


def _continue_from(case: Case, start: Start) -> None:
    saved = start.checkpoint
    if saved.mesh != case.digest():
        file = flatten(case.config).get(f"{case.domain}.file")
        changed = f", and with the same {file}, which may have changed since" if file else ""
        raise UserError(f"{start.path}: checkpoint of another {case.domain} (digest {saved.mesh[:12]}, this one"
                        f" {case.digest()[:12]}); restart with the same [{case.domain}] settings{changed}")  # fmt: skip
    if problem := case.why_not_after(start.config):
        raise UserError(f"{start.path}: {problem}")
    put_in(case, start)
    if problem := case.is_past(start.config):
        raise UserError(f"{start.path}: {problem}")
    case.restored()


def _is_at_end(job: Job, case: Case) -> bool:
    """Whether the checkpoint leaves nothing to iterate."""
    reached = job.start.checkpoint.iteration if job.start else 0
    return reached >= job.config.run.iterations or case.steps_left(case.recorded_now()) == 0


def _check_end(job: Job, case: Case, folder: RunFolder) -> None:
    """A run that has reached its end can be finished again where it is, but not continued elsewhere."""
    if job.start is not None and not folder.goes_on and _is_at_end(job, case):
        reached = job.start.checkpoint.iteration
        raise UserError(f"{job.start.path}: this run has reached its end (iteration {reached}); give a later one,"
                        f" such as {case.longer()}")  # fmt: skip


def launch(job: Job, folder: RunFolder, report: RunReport, began: float) -> tuple[Case, Outcome]:
    """Set the case up and run it; a folder claimed for a run that never began is given back."""
    case, runner = prepare(job, folder, report, began)
    return case, iterate(job, folder, runner)


def prepare(job: Job, folder: RunFolder, report: RunReport, began: float) -> tuple[Case, Runner]:
    """The case, set up and compiled, and its runner; where that fails, the folder is given back and let go."""
    try:
        with one_line_for(job.case.own_file(), UserError), compiled_meanwhile():
            with busy(f"{job.case.name}: setting up"):
                case = set_up(job)
            _check_end(job, case, folder)
            check_measured(case)
            _announce(job, case, folder, report)
            with busy(f"{job.case.name}: making its loops ready"):
                case.program.run(0, record=case.recorded)  # compiled here, where it can be stopped without a trace
            runner = Runner(case, folder, report, job.start, began, profile=job.profile)
            if job.case.own_file() is not None and not job.finish:
                _check_precision(case)
                rehearse(case, runner.history[0])
            return case, runner
    except BaseException:
        folder.abandon()
        folder.release()
        raise


def _check_precision(case: Case) -> None:
    """UserError where a case has not heard of the precision that was asked for."""
    types = {one.dtype for one in case.state if one.dtype.kind == "f"}
    if types and case.dtype not in types:
        raise UserError(f"run.precision = {case.precision}, but no field of the state of case '{case.name}' is"
                        f" {case.dtype}; make them with dtype=self.dtype")  # fmt: skip


def iterate(job: Job, folder: RunFolder, runner: Runner) -> Outcome:
    """The run itself; then the folder is let go."""
    try:
        with one_line_for(job.case.own_file(), RunError):
            return runner.finish() if job.finish else runner.run()
    finally:
        folder.release()


def make_page(run: Path) -> Path:
    """Write the page of the run in a folder again, from its files; returns it."""
    from meshloom.run.page.rebuild import FromSettings, rebuild_page

    def read(path: Path) -> FromSettings:
        case, settings = load_case_file(path)
        return FromSettings(case.name, case.title, setting_rows(build(case.Config, settings, old=True)))

    return rebuild_page(run, read)


def _announce(job: Job, case: Case, folder: RunFolder, report: RunReport) -> None:
    """What is about to run, before the bar appears."""
    name = f"{case.name} ({case.source.target})" if case.source else case.name
    report.message(
        f"{name}: {case.size_text()}; back end {_backend_text(job.config.run)},"
        f" {job.config.run.precision} precision{_ranks_text(job.config.run)}; writing to {folder.path}"
    )
    for line in case.doubts():
        report.warning(line)
    for line in long_compilations(case.program):
        report.message(line)
    if job.start is not None:
        changed = f"; changed: {', '.join(job.changed)}" if job.changed else ""
        place = f"{job.start.path}, iteration {job.start.checkpoint.iteration}{changed}"
        if job.finish or _is_at_end(job, case):
            report.message(f"no iteration, files are made again from {place}")
        else:
            report.message(f"going on from {place}")
            if said := case.shortened(job.start.config):
                report.message(said)


def _ranks_text(options: RunOptions) -> str:
    """How many there are, and whether that changes the results; '' where there is one, and nobody has asked."""
    if ml.world.size == 1:
        return "; the same bits on any number of ranks" if options.reproducible else ""
    cut = "" if options.partition == ml.partitioners()[0] else f" cut by {options.partition}"
    bits = ("the same bits as on any other number" if options.reproducible else
            "bits depend on their number (not with --set run.reproducible=true)")  # fmt: skip
    return f"; {ml.world.size} ranks{cut}, {bits}"


def long_compilations(program: ml.Program) -> list[str]:
    """What to say of loops that keep a compiler busy for long, before somebody thinks that the run hangs."""
    if ml.backend() == "numpy":  # which compiles nothing
        return []
    loops = [loop for loop in program.loops if loop.domain.visits_elements]
    sizes = {loop.name: sum(loop.counts.flops_by_kind.values()) for loop in loops}
    return [f"loop {name} has {size:,} operations: compiling it takes long, the first time"
            for name, size in sizes.items() if size >= _LONG_TO_COMPILE]  # fmt: skip


def _backend_text(options: RunOptions) -> str:
    """``cpu, 2 threads``, and whose number that is where nobody gave it to this run."""
    from_environment = ml.backend() == "cpu" and not options.threads and ml.threads() == ENVIRONMENT_THREADS
    return f"{backend_text(current())}{' (OMP_NUM_THREADS)' if from_environment else ''}"


def threads_in_use() -> int:
    """Threads that the back end in use really has."""
    return ml.threads() if ml.backend() == "cpu" else 1
