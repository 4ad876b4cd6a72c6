"""What lies in the cache is replaced by something else, and processes are forked."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache as remembered
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import meshloom as ml
from meshloom.errors import CompilerError
from meshloom.native import cache, compiler
from meshloom.schedule import plan as plans
from tests.attacks.campaign import Broken, Campaign
from tests.attacks.child import in_child
from tests.attacks.damage import damaged

Arrays = dict[str, np.ndarray]

# ---- plans ------------------------------------------------------------------------------------------------------

#: (back end, strategy, variant, ordering of the visit)
LOOPS = (
    ("cpu", "color", "plain", "given"), ("cpu", "color", "indices", "given"), ("cpu", "block_color", "plain", "given"),
    ("cpu", "block_atomic", "plain", "rcm"), ("cpu", "staged", "plain", "given"), ("cpu", "owner", "plain", "given"),
    ("cpu", "tile", "plain", "given"), ("cpu", "atomic", "plain", "rcm"), ("emulated", "block_color", "plain", "given"),
    ("emulated", "block_atomic", "plain", "given"), ("emulated", "owner", "plain", "given"),
    ("emulated", "strip", "plain", "given"), ("emulated", "tile", "plain", "given"),
)  # fmt: skip
Loop = tuple[str, str, str, str]


@ml.kernel
def attacked(x: ml.Read, q: ml.Read, seen: ml.Write, res: ml.Inc):
    seen[...] = x[0] + x[1]
    res[0] += 3 * q[0] - q[1]
    res[1] += q[1] + 2 * q[0]


def _answer(loop: Loop) -> np.ndarray:
    """What the loop gives: whole numbers, so that no order of adding matters."""
    backend, strategy, variant, order = loop
    ml.use(backend)
    mesh = ml.generate.box((14, 11))
    x, q, seen, res = mesh.nodes.field("x"), mesh.cells.field("q"), mesh.faces.field("seen"), mesh.cells.field("res")
    x.assign(np.arange(mesh.nodes.size, dtype=float).reshape(-1, 1))
    q.assign(np.arange(mesh.cells.size, dtype=float).reshape(-1, 1) % 17)
    wish = None if backend == "numpy" else ml.Schedule(strategy, variant=variant, order=order)
    sides = mesh.face_cells
    attacked(mesh.faces, x[mesh.face_nodes], q[sides], seen, res[sides], schedule=wish)
    return np.concatenate([seen.numpy().ravel(), res.numpy().ravel()])


@remembered
def _expected() -> np.ndarray:
    before = ml.backend()
    try:
        return _answer(("numpy", "", "", ""))
    finally:
        ml.use(before)


def _own_plans(folder: Path) -> Path:
    """A cache in ``folder`` with plans of its own; code is compiled once for all attempts."""
    shared = [kind for kind in ("code", "compiler", "cuda") if not (folder / kind).exists()]
    for kind in shared:
        (folder / kind).symlink_to(cache.cache_dir(kind).resolve())
    (folder / "plans").mkdir(exist_ok=True)
    return folder / "plans"


def _with_cache(folder: Path) -> None:
    """Only in a child: use this cache, also for small plans, and compile quickly; what is private goes beside it."""
    warnings.simplefilter("ignore")
    tempfile.tempdir = str(folder.parent if folder.name == "cache" else folder)
    os.environ |= {"MESHLOOM_CACHE": str(folder), "MESHLOOM_CXXFLAGS": "-O0"}
    plans.SMALLEST_CACHED = 1


@remembered
def _stored(loop: Loop) -> tuple[str, Arrays]:
    """The name of the file and the arrays that a loop's plan is kept as."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        kept = _own_plans(folder)

        def work() -> str:
            _with_cache(folder)
            return "right" if np.array_equal(_answer(loop), _expected()) else "wrong"

        if (found := in_child(work, 120)) != "right":
            raise Broken(f"{loop} with its own plan: {found}")
        (file,) = kept.glob("*.npz")
        with np.load(file) as stored:
            return file.name, {name: stored[name] for name in stored.files}


def _numbers(dice: random.Random, arrays: Arrays) -> str:
    """An array that is no label."""
    return dice.choice([name for name in arrays if name != "size_names"])


def _changed_entries(dice: random.Random, arrays: Arrays) -> None:
    name = _numbers(dice, arrays)
    flat = arrays[name].reshape(-1)
    for _ in range(dice.choice((1, 1, 2, 5))):
        if flat.size:
            value = dice.choice((-1, -2, 0, 1, 2, 7, flat.size, flat.size - 1, int(flat.max()) + 1, 10**6, 2**31 - 1))
            flat[dice.randrange(flat.size)] = np.array(value).astype(flat.dtype)


def _swapped_entries(dice: random.Random, arrays: Arrays) -> None:
    flat = arrays[_numbers(dice, arrays)].reshape(-1)
    for _ in range(dice.choice((1, 1, 3))):
        if flat.size > 1:
            a, b = dice.randrange(flat.size), dice.randrange(flat.size)
            flat[[a, b]] = flat[[b, a]]


def _permuted(dice: random.Random, arrays: Arrays) -> None:
    name = _numbers(dice, arrays)
    arrays[name] = np.random.default_rng(dice.randrange(10**6)).permutation(arrays[name], axis=0)


def _cut(dice: random.Random, arrays: Arrays) -> None:
    name = _numbers(dice, arrays)
    arrays[name] = arrays[name][: dice.randrange(len(arrays[name]) + 1)]


def _lengthened(dice: random.Random, arrays: Arrays) -> None:
    name = _numbers(dice, arrays)
    arrays[name] = np.concatenate([arrays[name], arrays[name][: dice.randint(1, 5)]])


def _other_type(dice: random.Random, arrays: Arrays) -> None:
    name = _numbers(dice, arrays)
    kind = dice.choice(("int8", "uint8", "int16", "uint16", "int32", "int64", "uint64", "float32", "float64", ">i4",
                        ">i8", "bool", "complex64", "S4"))  # fmt: skip
    arrays[name] = arrays[name].astype(kind)


def _other_shape(dice: random.Random, arrays: Arrays) -> None:
    name = dice.choice(list(arrays))
    one = arrays[name]
    arrays[name] = dice.choice((one.reshape(1, -1), one.reshape(-1, 1), np.asfortranarray(np.stack([one, one])), one.T,
                                np.zeros((), one.dtype)))  # fmt: skip


def _lost(dice: random.Random, arrays: Arrays) -> None:
    del arrays[dice.choice(list(arrays))]


def _lost_together(dice: random.Random, arrays: Arrays) -> None:
    """All of some kinds, such as near0_0 and near0_1."""
    stems = sorted({re.sub(r"[\d_]+$", "", name) for name in arrays})
    chosen = {*dice.sample(stems, min(len(stems), dice.randint(1, 3)))}
    for name in [name for name in arrays if re.sub(r"[\d_]+$", "", name) in chosen]:
        del arrays[name]


def _added(dice: random.Random, arrays: Arrays) -> None:
    name = dice.choice(("visit", "by_color0", "entry0", "near0", "marked0", "color_starts", "m0", "x); abort(", "n"))
    arrays[name] = dice.choice(list(arrays.values())).copy()


def _other_counts(dice: random.Random, arrays: Arrays) -> None:
    if len(arrays.get("sizes", ())):
        k = dice.randrange(len(arrays["sizes"]))
        arrays["sizes"][k] = dice.choice((arrays["sizes"][k] + 1, arrays["sizes"][k] - 1, 0, -1, 10**9, 2**39, 2**62))


def _other_labels(dice: random.Random, arrays: Arrays) -> None:
    text = bytes(arrays["size_names"]).decode()
    new = dice.choice((text + " more0", text.replace("0", "1"), " ".join(text.split()[::-1]), "", "é", "n n", "x;"))
    arrays["size_names"] = np.frombuffer(new.encode(), np.uint8)


def _exchanged(dice: random.Random, arrays: Arrays) -> None:
    other = _stored(dice.choice(LOOPS))[1]
    if dice.random() < 0.5:
        arrays.clear()
        arrays |= {name: one.copy() for name, one in other.items()}
    else:
        name = dice.choice(list(other))
        arrays[name] = other[name].copy()


WAYS: tuple[Callable[[random.Random, Arrays], None], ...] = (
    _changed_entries, _changed_entries, _swapped_entries, _permuted, _cut, _lengthened, _other_type, _other_shape,
    _lost, _lost_together, _added, _other_counts, _other_labels, _exchanged,
)  # fmt: skip


def _write(file: Path, arrays: Arrays) -> None:
    """A whole file, as the cache itself writes it."""
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def plan_attempt(dice: random.Random, folder: Path) -> str:
    """A loop whose plan on disk is well-formed and wrong gives the right answer."""
    loop = dice.choice(LOOPS)
    name, whole = _stored(loop)
    arrays = {key: array.copy() for key, array in whole.items()}
    ways = [dice.choice(WAYS) for _ in range(dice.choice((1, 1, 1, 2)))]
    for way in ways:
        if arrays:
            with suppress(LookupError):  # what the first way took, or all there was
                way(dice, arrays)
    file = _own_plans(folder) / name
    _write(file, arrays)
    before = file.read_bytes()

    def work() -> str:
        _with_cache(folder)
        return "right" if np.array_equal(_answer(loop), _expected()) else "wrong"

    if (answer := in_child(work, 120)) != "right":
        raise Broken(f"{loop}, {' and '.join(w.__name__ for w in ways)}: {answer}")
    return "built again" if file.read_bytes() != before else "a right plan as well"


# ---- libraries --------------------------------------------------------------------------------------------------

SOURCE = 'extern "C" int answer() { return 42; }\nextern "C" double more(double x) { return 2 * x; }\n'
OTHER = 'extern "C" int answer() { return 41; }\n'


@remembered
def _libraries() -> tuple[Path, bytes, bytes]:
    """(name, content) of a library, and the content of another one."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "compiler").symlink_to(cache.cache_dir("compiler").resolve())

        def work() -> str:
            _with_cache(folder)
            return f"{compiler.build(SOURCE, 'victim')}\n{compiler.build(OTHER, 'other')}"

        first, second = map(Path, in_child(work, 120).splitlines())
        return Path(first.name), first.read_bytes(), second.read_bytes()


def _spoil(dice: random.Random, file: Path, whole: bytes, other: bytes) -> str:
    """Put something else in place of a library, or of what lies around it."""
    body = whole[: -compiler._SEAL_BYTES]
    ways: dict[str, Callable[[], object]] = {
        "damaged": lambda: file.write_bytes(damaged(dice, whole)),
        "half, sealed again": lambda: file.write_bytes(
            (half := body[: dice.randrange(len(body))]) + compiler._seal(half, file.stem)),
        "another one": lambda: file.write_bytes(other),
        "a pipe": lambda: os.mkfifo(file),
        "an empty folder": lambda: file.mkdir(),
        "a folder": lambda: (file / "x").mkdir(parents=True),
        "a dangling link": lambda: file.symlink_to(file.parent / "nothing"),
        "a link to itself": lambda: file.symlink_to(file),
        "a link to a device": lambda: file.symlink_to("/dev/zero"),
        "writable for all": lambda: (file.write_bytes(other), file.chmod(0o666)),
        "not readable": lambda: (file.write_bytes(whole), file.chmod(0)),
        "the lock a pipe": lambda: os.mkfifo(file.with_suffix(".lock")),
        "the lock a folder": lambda: file.with_suffix(".lock").mkdir(),
        "the source a pipe": lambda: os.mkfifo(file.with_suffix(".cpp")),
        "the source a folder": lambda: (file.with_suffix(".cpp") / "x").mkdir(parents=True),
        "a folder for all": lambda: (file.write_bytes(other), file.parent.chmod(0o777)),
        "a cache for all": lambda: (file.write_bytes(other), file.parent.parent.chmod(0o777)),
        "a file as the folder": lambda: (file.parent.rmdir(), file.parent.write_text("in the way")),
        "a pipe as the folder": lambda: (file.parent.rmdir(), os.mkfifo(file.parent)),
        "a folder for nobody": lambda: file.parent.chmod(0),
    }  # fmt: skip
    way = dice.choice(list(ways))
    ways[way]()
    return way


def library_attempt(dice: random.Random, folder: Path) -> str:
    """A library that is not what it should be is made again, or one line says why not."""
    name, whole, other = _libraries()
    root = folder / "cache"
    (root / "code").mkdir(parents=True)
    (root / "compiler").symlink_to(cache.cache_dir("compiler").resolve())
    way = _spoil(dice, root / "code" / name, whole, other)

    def work() -> str:
        _with_cache(root)
        try:
            found = compiler.load(SOURCE, "victim").answer()
        except CompilerError as refusal:
            return f"one line: {refusal}"
        return "right" if found == 42 else f"wrong: {found}"

    answer = in_child(work, 120)
    for path in (root / "code", root):
        with suppress(OSError):
            path.chmod(0o700)  # so that it can be removed
    if answer == "right":
        return "right"
    if answer.startswith("one line: ") and "\n" not in answer and "no C++ compiler" not in answer:
        return "one line"
    raise Broken(f"{way}: {answer}")


# ---- forks ------------------------------------------------------------------------------------------------------


def fork_attempt(dice: random.Random, folder: Path) -> str:
    """A program of loops, forks and pools, begun afresh, ends in time with right answers everywhere."""
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "tests.attacks.forking", str(dice.randrange(10**9))]
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore", "MESHLOOM_CXXFLAGS": "-O0"}
    with subprocess.Popen(words, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, start_new_session=True) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, 9)
            raise Broken(f"no end within 120 seconds: {words[-1]}") from None
    if process.returncode or not said.endswith("all right\n"):
        raise Broken(f"{words[-1]}: {process.returncode}: {said[-500:]}")
    return "right"


CAMPAIGNS = (
    Campaign("plans", "well-formed plan files of the cache with other entries, types, shapes, sizes, arrays or of"
             " another loop", "the loop's answer is right, and nothing crashes", plan_attempt, few=4, many=600),
    Campaign("libraries", "damaged, cut or foreign libraries in the cache; pipes, folders, links and rights of others"
             " in place of files and folders", "the right function, or one line", library_attempt, few=6, many=250),
    Campaign("forks", "programs of loops, replays, sorts and line solvers with forked children, their children and"
             " pools", "they end, with right answers", fork_attempt, few=1, many=100),
)  # fmt: skip
