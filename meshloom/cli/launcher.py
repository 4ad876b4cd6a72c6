"""Ranks are started by a launcher of MPI, and by no option: what to type instead of one, and which MPI there is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path

from meshloom.errors import UserError, install, one_line
from meshloom.process.ranks import LAUNCHERS, SLURM

#: What people try, in a command line that is joined: options, with a number or without, and a setting.
_ASKED = re.compile(r" (?:(?:--ranks|--nranks|--np|-np|-n)(?:[ =]?(\d+))?|--set[ =]run\.ranks(?:=(\d*))?)(?= |$)")
_LAUNCHERS = ("mpirun", "mpiexec")
_SECONDS = 60.0
#: Without joining other processes, and without MPI's own start.
_ASKS_MPI = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"


# ----- what to type ---------------------------------------------------------------------------------------------------
def check_not_asked(arguments: Sequence[str]) -> None:
    """UserError where a command line asks for ranks by an option or a setting, with what to type instead."""
    text = f" {shlex.join(arguments)}"
    asked = _ASKED.search(text)
    if asked is not None and arguments[0] in ("run", "finish"):
        number = asked[1] or asked[2] or "N"
        raise UserError(f"ranks are started by a launcher of MPI: mpirun -n {number} meshloom{_ASKED.sub('', text)}")


# ----- what there is --------------------------------------------------------------------------------------------------
def text_lines() -> Iterator[str]:
    """What ranks can be started with. mpi4py is not imported here, which would start MPI."""
    try:
        version = metadata.version("mpi4py")
    except metadata.PackageNotFoundError:
        yield f"mpi        no mpi4py, needed for several ranks: {install('mpich')}"
        return
    yield f"mpi        mpi4py {version}, {_library()}"
    found = _launcher()
    yield f"launcher   {found} -n 4 meshloom run airfoil" if found else f"launcher   none found: {install('mpich')}"


def _library() -> str:
    """The MPI that mpi4py finds, which a process of its own is asked for."""
    told = {*chain(*LAUNCHERS, SLURM)}
    environment = {name: value for name, value in os.environ.items() if name not in told}
    try:
        done = subprocess.run([sys.executable, "-c", _ASKS_MPI], capture_output=True, text=True, timeout=_SECONDS,
                              env=environment, stdin=subprocess.DEVNULL)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"whose MPI does not answer: {one_line(str(problem))}"
    if done.returncode:
        return f"which finds no MPI: {one_line((done.stderr.splitlines() or ['no reason'])[-1])}"
    return " ".join(one_line(done.stdout.replace("\t", " ").split("\n")[0]).split())


def _launcher() -> str:
    """As a person types it: that of the path, or else the one next to this Python; '' where there is none."""
    there = [name for name in _LAUNCHERS if shutil.which(name)]
    own = [str(one) for name in _LAUNCHERS if (one := Path(sys.executable).with_name(name)).is_file()]
    return next(iter([*there, *own]), "")
