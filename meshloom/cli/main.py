"""The command ``meshloom``: run, finish, report, cases, show, new, study, partition, info, cache.

Start-up is quick because every command imports what it needs and no more. An error made on purpose ends in one line
on stderr and its exit code: 2 when what was asked for is wrong, 1 when the run failed. A run that has finished but
could not show all that it should, because the case is wrong there, ends with 3.
"""

from __future__ import annotations

import errno
import gc
import io
import sys
import time
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshloom.cli.parsing import CommandGroup, OneCommand
from meshloom.errors import MeshloomError, RunError, UserError, is_text, one_line, shown
from meshloom.process import activity, ranks, start, streams
from meshloom.process.signals import exit_code

if TYPE_CHECKING:
    from meshloom.config import Setting
    from meshloom.launch import Job, Request

INCOMPLETE = 3  # exit code of a run that has finished, without something that the case fails to show

# What typer raises where a command line is wrong. It is a class of click's, which newer versions have inside them.
_WRONG_USE: Any = typer.BadParameter.__base__

# The interpreter has been loading packages for a while; that was nearly all computing.
_STARTED = time.perf_counter() - time.process_time()


app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Parallel loops over meshes, and ready cases that run on them.",
    epilog="Start with: [bold]meshloom run airfoil[/bold]; [bold]meshloom cases[/bold] lists all that can be run.",
)

_RUN_EXAMPLES = """Examples:

  meshloom run airfoil

  meshloom run airfoil --set mesh.i=200 --set mesh.j=300 --set flow.incidence=2 --iterations 5000

  meshloom show airfoil > mine.toml   (change it, then)   meshloom run mine.toml --out results

  meshloom run --restart runs/airfoil-001/checkpoint.h5 --iterations 10000

  mpirun -n 4 meshloom run airfoil   (on four ranks of MPI; see meshloom info, and meshloom cases for what runs so)

Signals: Ctrl-C, SIGTERM and SIGHUP stop with a checkpoint, a second Ctrl-C at once; SIGUSR1 writes a checkpoint now.
"""


_CHANGED = "Go on although the Python file of the case has changed since."
_NOT_BEGUN = "stopped before the first iteration"
_ALL_DONE = "stopped when all files had been written"


class Interrupted(MeshloomError):
    """Stopped by a person before there was anything to go on from."""

    exit_code = 130


def main() -> None:
    """Entry point: no tracebacks for errors that Meshloom raises on purpose, and for commands that are none. Of several
    ranks the root speaks, and all end with one exit code."""
    if ranks.launched().rank > 0:
        ranks.silence()
    gc.set_threshold(50_000, 20, 50)  # objects; at Python's 700 looking for circles takes a tenth of setting up
    with start.as_command():
        try:
            said, code = "", _carried_out()
        except MeshloomError as error:
            said, code = str(error), error.exit_code
        except MemoryError:
            said, code = "out of memory; take a smaller mesh or --precision single", 1
        code = _ended(said, code)
        start.command.code = code
        sys.exit(code)


def _ended(said: str, code: int) -> int:
    """The exit code of all ranks, after the line of an error that one of them has met."""
    with suppress(MeshloomError):  # they cannot be joined, which is what is said
        said, code, _ = ranks.ranks().arrive(said, code)
    return _failed(said, code) if said else code


def _carried_out() -> int:
    """The exit code of a command. One that only prints has failed if it could not, but a reader may leave early."""
    _check_arguments(sys.argv[1:])
    ranks.ranks().check_given({"the command": " ".join(sys.argv[1:2])})
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)  # a line is printed, whatever PYTHONWARNINGS makes of others
        warnings.showwarning = partial(_warn, warnings.showwarning)
        code = _asked()
    loss = streams.loss_of(sys.stdout)
    if loss is None or loss.errno == errno.EPIPE or code or not start.command.prints_only:
        return code
    return _failed(f"cannot write to stdout: {loss.strerror}", 1)


def _check_arguments(arguments: list[str]) -> None:
    """UserError where one is no text: names and paths are written to files, which are UTF-8."""
    for number, argument in enumerate(arguments, start=1):
        if not is_text(argument):
            raise UserError(f"argument {number}, {shown(argument)}, is not text: a byte in it is not UTF-8, or NUL")


def _asked() -> int:
    """The exit code of what the arguments ask for; where that is no command, one line says so."""
    try:
        return int(app(prog_name="meshloom", standalone_mode=False) or 0)
    except SystemExit as end:
        return int(end.code or 0)
    except _WRONG_USE as error:
        if not sys.argv[1:]:  # no command at all: what is raised is the help
            error.show()
            return int(error.exit_code)
        _check_ranks_not_asked()
        command = error.ctx.command_path if error.ctx else "meshloom"
        return _failed(f"{error.format_message().rstrip('.')}; see {command} --help", error.exit_code)
    except typer.Abort:
        return _failed("stopped", 1)


def _check_ranks_not_asked() -> None:
    from meshloom.cli.launcher import check_not_asked

    check_not_asked(sys.argv[1:])


def _failed(message: str, code: int) -> int:
    activity.line.close()
    print(f"meshloom: {one_line(' '.join(message.split()))}", file=sys.stderr)
    return code


def _warn(otherwise: Any, message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    """What Meshloom has to say by the way is one line as well; other warnings are shown as Python does."""
    with activity.line.room():
        if category is UserWarning:
            print(f"meshloom: {one_line(str(message))}", file=sys.stderr)
        else:
            otherwise(message, category, *rest, **more)


def _flag(*names: str, **more: Any) -> Any:
    """An option without a value. Newer versions of typer print <bool> next to it unless told what else to print."""
    return typer.Option(*names, metavar="", **more)


def _print_version(wanted: bool) -> None:
    if wanted:
        import meshloom

        print(f"meshloom {meshloom.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, _flag("--version", help="Print the version and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command(cls=OneCommand, epilog=_RUN_EXAMPLES)
def run(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="CASE_OR_FILE", help="A case (see meshloom cases), a Python or TOML file (see new, show)."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as mesh.i=200. May be repeated."),
    ] = None,
    backend: Annotated[
        str | None, typer.Option(metavar="NAME", help="auto, cuda, cpu, numpy, hip or emulated; see meshloom info.")
    ] = None,
    precision: Annotated[str | None, typer.Option(metavar="double|single", help="Type of the numbers.")] = None,
    iterations: Annotated[str | None, typer.Option(metavar="N", help="Iterations in all.")] = None,
    threads: Annotated[
        str | None, typer.Option(metavar="N", help="Threads; 0 takes OMP_NUM_THREADS, or all cores.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder to write to; otherwise the next free runs/CASE-001.")
    ] = None,
    restart: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on from a checkpoint or run folder, with its settings unless changed."),
    ] = None,
    overwrite: Annotated[bool, _flag("--overwrite", help="Replace the run that --out holds.")] = False,
    changed: Annotated[bool, _flag("--changed", help=_CHANGED)] = False,
    json: Annotated[bool, _flag("--json", help="End stdout with one line of JSON.")] = False,
    quiet: Annotated[bool, _flag("--quiet", "-q", help="Print nothing but errors, warnings and JSON.")] = False,
    profile: Annotated[bool, _flag("--profile", help="Tell at the end which loop took how long, and why.")] = False,
) -> None:
    """Run a case: progress, monitors, fields for ParaView, checkpoints, a picture and a page to look at."""
    _becomes_a_run()
    from meshloom.launch import Request, check

    if any("run.ranks" in one for one in changes or ()):
        _check_ranks_not_asked()
    settings = _settings(changes, backend=backend, precision=precision, iterations=iterations, threads=threads)
    request = Request(target, settings, _path("--out", out), _path("--restart", restart), overwrite, profile=profile,
                      changed=changed)  # fmt: skip
    _carry_out(request, check(request), json=json, quiet=quiet)


def _becomes_a_run() -> None:
    """The command is about files: what it prints may be lost, and a signal finds nothing begun yet."""
    start.command.prints_only, start.command.if_stopped = False, _NOT_BEGUN


def _path(option: str, text: str | None) -> Path | None:
    """UserError for an empty one, which Python takes for the folder that we are in."""
    if text == "":
        raise UserError(f"{option} '' names nothing; give a path")
    return None if text is None else Path(text)


def _settings(changes: list[str] | None, **flags: str | None) -> tuple[Setting, ...]:
    """Those of ``--set``, and of flags: ``--iterations 200`` is ``--set run.iterations=200``, and errors name it as it
    was typed."""
    from dataclasses import replace

    from meshloom.config import parse_set

    of_flags = (
        replace(parse_set(f"run.{name}={value}"), where=f"--{name} {shown(value)[1:-1]}")
        for name, value in flags.items()
        if value is not None
    )
    return *map(parse_set, changes or ()), *of_flags


def _carry_out(request: Request, job: Job, *, json: bool, quiet: bool) -> None:
    """Run a checked job and say how it ended."""
    from meshloom.cli import summary
    from meshloom.launch import folder_for, launch
    from meshloom.run.report import make_report
    from meshloom.run.times import as_text

    activity.line.close()
    activity.line.quiet = quiet
    folder = folder_for(request, job)
    report = make_report(sys.stderr if json else sys.stdout, quiet=quiet)
    if not json:
        streams.tell_when_lost(sys.stdout, _tell_that_stdout_is_lost)
    try:
        case, outcome = launch(job, folder, report, _STARTED)
    except KeyboardInterrupt:
        raise Interrupted(_NOT_BEGUN) from None
    start.command.if_stopped = _ALL_DONE
    if outcome.finished or job.finish:
        report.message(summary.table(case, folder, outcome))
    if job.profile:
        report.message(as_text(outcome.times))
    if not outcome.finished:
        how = "not at its end:" if job.finish else "stopped at"
        print(f"meshloom: {how} iteration {outcome.iteration}; go on with: {summary.going_on(folder)}", file=sys.stderr)
    if json:
        print(summary.as_json(case, folder, outcome, profile=job.profile))
    for failure in outcome.failures:
        print(f"meshloom: {failure}; everything else is there", file=sys.stderr)
    if not outcome.finished and not job.finish:
        raise typer.Exit(exit_code(outcome.stopped_by))
    loss = streams.loss_of(sys.stdout)
    if json and loss is not None:
        raise RunError(f"the JSON could not be written to stdout: {loss.strerror}; the run is complete, {folder.path}")
    if outcome.failures:
        raise typer.Exit(INCOMPLETE)


@app.command(cls=OneCommand, epilog="Example:  meshloom finish runs/airfoil-001")
def finish(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run, or its checkpoint.")],
    changed: Annotated[bool, _flag("--changed", help=_CHANGED)] = False,
    json: Annotated[bool, _flag("--json", help="End stdout with one line of JSON.")] = False,
    quiet: Annotated[bool, _flag("--quiet", "-q", help="Print nothing but errors, warnings and JSON.")] = False,
) -> None:
    """Make fields, charts, pictures and summary again from a run's last checkpoint, without iterating."""
    _becomes_a_run()
    from meshloom.launch import Request, check, checkpoint_of

    request = Request(None, restart=checkpoint_of(Path(run)), finish=True, changed=changed)
    _carry_out(request, check(request), json=json, quiet=quiet)


@app.command(cls=OneCommand, epilog="Example:  meshloom report runs/airfoil-001")
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")],
) -> None:
    """Make the page report.html of a run again, from the files in its folder."""
    from meshloom.launch import make_page

    start.command.prints_only = False
    print(make_page(Path(run)))


def _tell_that_stdout_is_lost(loss: OSError) -> None:
    streams.write_to_stderr(f"meshloom: stdout is gone ({loss.strerror}); the run goes on without it")


@app.command(cls=OneCommand)
def cases(
    json: Annotated[bool, _flag("--json", help="Print one line of JSON, which says why, too.")] = False,
) -> None:
    """List the cases that can be run; those marked 'one process' do not run on several ranks of MPI."""
    from meshloom.cli.cases import text_lines

    for line in text_lines(json):
        print(line)


@app.command(cls=OneCommand, epilog="Example:  meshloom show airfoil > mine.toml")
def show(
    target: Annotated[
        str, typer.Argument(metavar="CASE_OR_FILE", help="A case, its Python file, or a TOML file to complete.")
    ],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting. May be repeated.")
    ] = None,
) -> None:
    """Print a case's whole configuration as TOML, every setting explained: a file that run accepts."""
    from meshloom.config import to_toml
    from meshloom.launch import Request, check, schedule_remark

    job = check(Request(target, _settings(changes)))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # what TOML is written in, everywhere
    print(to_toml(job.config, {"case": job.case.head()["case"]}, remarks={"schedule": schedule_remark(job)}), end="")


_STUDY_EXAMPLES = """Examples:

  meshloom study airfoil --over flow.mach=[0.3,0.4,0.5] --over flow.incidence=[0,2,4] --set mesh.i=40 --set mesh.j=60

  meshloom study machs.toml   (a file as for run, with a table \\[study] of what varies)

The same command goes on with a study that was stopped or killed.
"""


@app.command(cls=OneCommand, epilog=_STUDY_EXAMPLES)
def study(
    target: Annotated[str, typer.Argument(metavar="CASE_OR_FILE", help="A case, its Python file, or a TOML file.")],
    over: Annotated[
        list[str] | None, typer.Option("--over", metavar="KEY=[...]", help="The values of a setting. May be repeated.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of all. May be repeated.")
    ] = None,
    backend: Annotated[str | None, typer.Option(metavar="NAME", help="The back end of all.")] = None,
    precision: Annotated[str | None, typer.Option(metavar="double|single", help="Type of the numbers.")] = None,
    iterations: Annotated[str | None, typer.Option(metavar="N", help="Iterations of each.")] = None,
    threads: Annotated[
        str | None,
        typer.Option(metavar="N", help="Threads of each; otherwise its share of the cores, OMP_NUM_THREADS at most."),
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Folder to write to; otherwise studies/CASE.")] = None,
    workers: Annotated[str | None, typer.Option(metavar="N", help="Runs at a time; otherwise one a core.")] = None,
    show: Annotated[
        str | None, typer.Option(metavar="NAME", help="Draw this monitor, probe or integral; otherwise the first one.")
    ] = None,
    quiet: Annotated[bool, _flag("--quiet", "-q", help="Print nothing but errors and warnings.")] = False,
) -> None:
    """Run a case for every combination of settings: one table, one picture."""
    _becomes_a_run()
    from meshloom.cli.study import carried_out

    start.command.if_stopped = "stopped; the same command goes on with this study"
    try:
        settings = _settings(changes, backend=backend, precision=precision, iterations=iterations, threads=threads)
        found = carried_out(target, over or [], [*settings], _path("--out", out), workers, show, not quiet)
    except KeyboardInterrupt as stop:
        raise Interrupted(str(stop) or _NOT_BEGUN) from None
    if found.failed:
        failed = f"{len(found.failed)} of {len(found.rows)} runs failed"
        raise RunError(f"{failed}, first {found.failed[0].run}: {found.failed[0].why}; all of it is in {found.folder}")


_PARTITION_EXAMPLES = """Examples:

  meshloom partition airfoil -n 64

  meshloom partition airfoil -n 4 --set mesh.i=40 --set mesh.j=60 --array mine.npy --json
"""


@app.command(cls=OneCommand, epilog=_PARTITION_EXAMPLES)
def partition(
    target: Annotated[str, typer.Argument(metavar="CASE_OR_FILE", help="A case, its Python file, or a TOML file.")],
    ranks: Annotated[str, typer.Option("-n", "--ranks", metavar="N", help="Among how many ranks.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting. May be repeated.")
    ] = None,
    array: Annotated[
        str | None, typer.Option(metavar="FILE", help="A partition of yours, too: the rank of every cell, as .npy.")
    ] = None,
    json: Annotated[bool, _flag("--json", help="Print one line of JSON instead of the table.")] = False,
) -> None:
    """Tell how the sets of a case would be cut over ranks, by every partitioner; nothing is run."""
    from meshloom.cli.partition import text_lines

    for line in text_lines(target, ranks, _settings(changes), _path("--array", array), json):
        print(line)


@app.command(cls=OneCommand, epilog="Example:  meshloom new heat && meshloom run heat.py")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it; NAME.py is written here.")],
    kind: Annotated[str, typer.Option(metavar="mesh|grid", help="What it lives on.")] = "mesh",
) -> None:
    """Write a case of your own to start from, which runs as it is."""
    from meshloom.catalogue.start import write_start

    path = write_start(name, kind, Path())
    print(f"{path} is written; try: meshloom run {path}, then change it")


@app.command(cls=OneCommand)
def info() -> None:
    """Tell about this machine: cores, GPU, compilers, back ends, memory bandwidth."""
    from meshloom.cli.info import text_lines

    for line in text_lines():
        print(line)


@app.command(cls=OneCommand)
def cache(clear: Annotated[bool, _flag("--clear", help="Remove all that it holds; it is made again.")] = False) -> None:
    """Tell where compiled code and plans are kept, and how much that is."""
    from meshloom.cli.cache import cleared, text_lines

    for line in cleared() if clear else text_lines():
        print(line)
