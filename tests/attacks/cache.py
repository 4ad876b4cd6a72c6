"""What lies in the cache is replaced by something else, and processes are forked."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache as remembered
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.errors import CompilerError
from meshloom.native import cache, compiler
from meshloom.schedule.plan import plan_cache
from meshloom.schedule.plan.declare import Array, Declared, Holding, Listed, Pairs, Part, Table, declared
from meshloom.schedule.plan.plan import Plan
from tests.attacks.campaign import Broken, Campaign
from tests.attacks.child import in_child
from tests.attacks.damage import damaged

Arrays = dict[str, np.ndarray]

# ---- plans ------------------------------------------------------------------------------------------------------

#: (back end, strategy, variant, ordering of the visit, kernel)
LOOPS = (
    ("cpu", "color", "plain", "given", "uneven"), ("cpu", "color", "indices", "given", "uneven"),
    ("cpu", "block_color", "plain", "given", "uneven"), ("cpu", "block_atomic", "plain", "rcm", "uneven"),
    ("cpu", "staged", "plain", "given", "uneven"), ("cpu", "owner", "plain", "given", "uneven"),
    ("cpu", "tile", "plain", "given", "uneven"), ("cpu", "atomic", "plain", "rcm", "uneven"),
    ("emulated", "block_color", "plain", "given", "uneven"), ("emulated", "block_atomic", "plain", "given", "uneven"),
    ("emulated", "owner", "plain", "given", "uneven"), ("emulated", "owner", "plain", "given", "symmetric"),
    ("emulated", "strip", "plain", "given", "uneven"), ("emulated", "tile", "plain", "given", "uneven"),
    ("emulated", "warp_atomic", "plain", "rcm", "uneven"), ("emulated", "color", "indices", "rcm", "uneven"),
)  # fmt: skip
Loop = tuple[str, str, str, str, str]


@ml.kernel
def attacked(x: ml.Read, q: ml.Read, seen: ml.Write, res: ml.Inc):
    seen[...] = x[0] + x[1]
    res[0] += 3 * q[0] - q[1]
    res[1] += q[1] + 2 * q[0]


@ml.kernel
def attacked_symmetric(x: ml.Read, q: ml.Read, seen: ml.Write, res: ml.Inc):
    f = (q[0] + q[1]) * (x[1] - x[0])
    seen[...] = x[0] + x[1]
    res[0] += f
    res[1] -= f


KERNELS = {"uneven": attacked, "symmetric": attacked_symmetric}  # neighbour tables by slot, symmetric ones


def _answer(loop: Loop) -> np.ndarray:
    """What the loop gives: whole numbers, so that no order of adding matters."""
    backend, strategy, variant, order, kernel = loop
    ml.use(backend)
    mesh = ml.generate.box((18, 16))
    x, q, seen, res = mesh.nodes.field("x"), mesh.cells.field("q"), mesh.faces.field("seen"), mesh.cells.field("res")
    x.assign(np.arange(mesh.nodes.size, dtype=float).reshape(-1, 1))
    q.assign(np.arange(mesh.cells.size, dtype=float).reshape(-1, 1) % 17)
    wish = None if backend == "numpy" else ml.Schedule(strategy, variant=variant, order=order)
    sides = mesh.face_cells
    KERNELS[kernel](mesh.faces, x[mesh.face_nodes], q[sides], seen, res[sides], schedule=wish)
    return np.concatenate([seen.numpy().ravel(), res.numpy().ravel()])


@remembered
def _expected(kernel: str) -> np.ndarray:
    before = ml.backend()
    try:
        return _answer(("numpy", "", "", "", kernel))
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
    plan_cache.smallest_stored = lambda: 1


@dataclass
class Entry:
    """A plan as it lies on the disk: its outline and its arrays; and what its type declares, to be attacked."""

    outline: Any
    arrays: Arrays

    @classmethod
    def of(cls, stored: Arrays) -> Entry:
        kept = {name: array.copy() for name, array in stored.items() if name != plan_cache.OUTLINE}
        return cls(json.loads(bytes(stored[plan_cache.OUTLINE])), kept)

    def stored(self) -> Arrays:
        text = self.outline if isinstance(self.outline, bytes) else json.dumps(self.outline).encode()
        return {plan_cache.OUTLINE: np.frombuffer(text, np.uint8)} | self.arrays

    def fields(self) -> list[tuple[Any, Any, Declared]]:
        """(what holds it, its key there, its declaration) of every field of the plan and of all its parts."""
        kinds = {one.__name__: one for one in _types(Plan)}
        return [*_fields(self.outline["plan"], kinds[self.outline["plan"]["type"]])]


def _types(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from _types(one)


def _fields(outline: Any, kind: type) -> Iterator[tuple[Any, Any, Declared]]:
    for one in declared(kind):
        yield outline["fields"], one.name, one
        yield from _inside(outline["fields"].get(one.name), one.holding, one)


def _inside(outline: Any, holding: Holding, named: Declared) -> Iterator[tuple[Any, Any, Declared]]:
    """The entries of tables and lists, and the fields of parts."""
    if outline is None:
        return
    if isinstance(holding, Part):
        yield from _fields(outline, next(one for one in holding.kinds if one.__name__ == outline["type"]))
    elif isinstance(holding, Table):
        for row in outline:
            yield row, 1, Declared(named.name, holding.of, named.words, named.needed)
            yield from _inside(row[1], holding.of, named)
    elif isinstance(holding, Listed):
        for k, one in enumerate(outline):
            yield outline, k, Declared(named.name, holding.of, named.words, named.needed)
            yield from _inside(one, holding.of, named)


@remembered
def _stored(loop: Loop) -> tuple[str, Arrays]:
    """The name of the file and the arrays that a loop's plan is kept as."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        kept = _own_plans(folder)

        def work() -> str:
            _with_cache(folder)
            return "right" if np.array_equal(_answer(loop), _expected(loop[-1])) else "wrong"

        if (found := in_child(work, 120)) != "right":
            raise Broken(f"{loop} with its own plan: {found}")
        (file,) = kept.glob("*.npz")
        with np.load(file) as stored:
            return file.name, {name: stored[name] for name in stored.files}


# Arrays: the one of a field that is declared as one, each as likely as the others.


def _array(dice: random.Random, entry: Entry) -> str:
    """The key of an array that the plan declares, and has."""
    found = [holder[key] for holder, key, one in entry.fields() if isinstance(one.holding, Array)]
    return f"array{dice.choice([number for number in found if isinstance(number, int)])}"


def _changed_entries(dice: random.Random, entry: Entry) -> None:
    flat = entry.arrays[_array(dice, entry)].reshape(-1)
    for _ in range(dice.choice((1, 1, 2, 5))):
        if flat.size:
            value = dice.choice((-1, -2, 0, 1, 2, 7, flat.size, flat.size - 1, int(flat.max()) + 1, 10**6, 2**31 - 1))
            flat[dice.randrange(flat.size)] = np.array(value).astype(flat.dtype)


def _swapped_entries(dice: random.Random, entry: Entry) -> None:
    flat = entry.arrays[_array(dice, entry)].reshape(-1)
    for _ in range(dice.choice((1, 1, 3))):
        if flat.size > 1:
            a, b = dice.randrange(flat.size), dice.randrange(flat.size)
            flat[[a, b]] = flat[[b, a]]


def _permuted(dice: random.Random, entry: Entry) -> None:
    name = _array(dice, entry)
    entry.arrays[name] = np.random.default_rng(dice.randrange(10**6)).permutation(entry.arrays[name], axis=0)


def _cut(dice: random.Random, entry: Entry) -> None:
    name = _array(dice, entry)
    entry.arrays[name] = entry.arrays[name][: dice.randrange(len(entry.arrays[name]) + 1)]


def _lengthened(dice: random.Random, entry: Entry) -> None:
    name = _array(dice, entry)
    entry.arrays[name] = np.concatenate([entry.arrays[name], entry.arrays[name][: dice.randint(1, 5)]])


def _other_type(dice: random.Random, entry: Entry) -> None:
    name = _array(dice, entry)
    kind = dice.choice(("int8", "uint8", "int16", "uint16", "int32", "int64", "uint64", "float32", "float64", ">i4",
                        ">i8", "bool", "complex64", "S4"))  # fmt: skip
    entry.arrays[name] = entry.arrays[name].astype(kind)


def _other_shape(dice: random.Random, entry: Entry) -> None:
    name = _array(dice, entry)
    one = entry.arrays[name]
    entry.arrays[name] = dice.choice((one.reshape(1, -1), one.reshape(-1, 1), np.asfortranarray(np.stack([one, one])),
                                      one.T, np.zeros((), one.dtype)))  # fmt: skip


def _lost(dice: random.Random, entry: Entry) -> None:
    del entry.arrays[_array(dice, entry)]


def _added(dice: random.Random, entry: Entry) -> None:
    name = dice.choice(("array99", "visit", "m0", "x); abort(", "n"))
    entry.arrays[name] = dice.choice(list(entry.arrays.values())).copy()


def _exchanged_arrays(dice: random.Random, entry: Entry) -> None:
    a, b = _array(dice, entry), _array(dice, entry)
    entry.arrays[a], entry.arrays[b] = entry.arrays[b], entry.arrays[a]


# Outlines: any field of the plan or of one of its parts.


def _field_lost(dice: random.Random, entry: Entry) -> None:
    """A field, or an entry of a table, is left out, or said not to be there, with the arrays in it or without."""
    holder, key, _ = dice.choice(entry.fields())
    if dice.random() < 0.5:
        for number in _numbers(holder[key]):
            entry.arrays.pop(f"array{number}", None)
    if dice.random() < 0.5 or isinstance(holder, list):
        holder[key] = None
    else:
        del holder[key]


def _numbers(outline: Any) -> Iterator[int]:
    """All whole numbers of an outline."""
    if isinstance(outline, dict | list):
        for one in outline.values() if isinstance(outline, dict) else outline:
            yield from _numbers(one)
    elif isinstance(outline, int):
        yield outline


def _field_changed(dice: random.Random, entry: Entry) -> None:
    """Something else in place of a field: of another kind, too large, of another field."""
    fields = entry.fields()
    (holder, key, _), (other, there, _) = dice.choice(fields), dice.choice(fields)
    another = deepcopy(other[there])
    holder[key] = dice.choice((0, 1, -1, 99, 2**62, 2**70, 1.5, True, "x", [], {}, [[0, 0]], [[0, 1], [0, 1]], [[0]],
                               [[10**6, 3]], [[-1, 0]], another, [another]))  # fmt: skip


def _field_added(dice: random.Random, entry: Entry) -> None:
    holder, _, _ = dice.choice(entry.fields())
    if isinstance(holder, dict):
        holder[dice.choice(("more", "visit", "strategy", "block", "check", "__class__"))] = dice.choice((0, None, "x"))
    else:
        holder.append(deepcopy(holder[0]))


def _other_numbers(dice: random.Random, entry: Entry) -> None:
    """The numbers of maps, target sets and slots: in the rows of a table or of pairs."""
    rows = [row for holder, key, one in entry.fields() if isinstance(one.holding, Table | Pairs)
            for row in (holder[key] if isinstance(holder[key], list) else ()) if isinstance(row, list)]  # fmt: skip
    if rows:
        row = dice.choice(rows)
        place = dice.randrange(len(row)) if all(isinstance(one, int) for one in row) else 0
        row[place] = dice.choice((0, 1, 2, 3, -1, 7, 10**6, "0", None, True, 0.0))


def _pairs_changed(dice: random.Random, entry: Entry) -> None:
    found = [holder[key] for holder, key, one in entry.fields() if isinstance(one.holding, Pairs)]
    pairs = dice.choice([one for one in found if isinstance(one, list)] or [[]])
    match dice.randrange(3):
        case 0:
            pairs.append([dice.randrange(4), dice.randrange(4)])
        case 1:
            dice.shuffle(pairs)
        case 2 if pairs:
            pairs.pop()


def _other_head(dice: random.Random, entry: Entry) -> None:
    """Another schema, another type, another outline altogether."""
    plan = entry.outline["plan"]
    entry.outline = dice.choice((
        entry.outline | {"schema": dice.choice((0, 6, plan_cache.SCHEMA + 1, "7", None, True))},
        {"plan": plan}, {"schema": plan_cache.SCHEMA},
        entry.outline | {"plan": plan | {"type": dice.choice([one.__name__ for one in _types(Plan)])}},
        entry.outline | {"plan": [plan]}, None, [], 0, "", b"", b"{", b"\xff", b"[" * 10**5,
    ))  # fmt: skip


def _exchanged(dice: random.Random, entry: Entry) -> None:
    """Everything of another loop's plan, or its outline or arrays alone."""
    other = Entry.of(_stored(dice.choice(LOOPS))[1])
    kept = dice.randrange(3)
    entry.outline = entry.outline if kept == 1 else other.outline
    entry.arrays = entry.arrays if kept == 2 else other.arrays


WAYS: tuple[Callable[[random.Random, Entry], None], ...] = (
    _changed_entries, _changed_entries, _changed_entries, _swapped_entries, _permuted, _cut, _lengthened, _other_type,
    _other_shape, _lost, _added, _exchanged_arrays, _field_lost, _field_lost, _field_changed, _field_changed,
    _field_added, _other_numbers, _pairs_changed, _other_head, _exchanged,
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
    entry = Entry.of(whole)
    ways = [dice.choice(WAYS) for _ in range(dice.choice((1, 1, 1, 2)))]
    for way in ways:
        with suppress(KeyError, IndexError, TypeError, AttributeError, StopIteration):  # what the first way took
            way(dice, entry)
    file = _own_plans(folder) / name
    _write(file, entry.stored())
    before = file.read_bytes()

    def work() -> str:
        _with_cache(folder)
        return "right" if np.array_equal(_answer(loop), _expected(loop[-1])) else "wrong"

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
    body = whole[: -compiler._CHECKSUM_BYTES]
    ways: dict[str, Callable[[], object]] = {
        "damaged": lambda: file.write_bytes(damaged(dice, whole)),
        "half, with a checksum": lambda: file.write_bytes(
            (half := body[: dice.randrange(len(body))]) + compiler._checksum(half, file.stem)),
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
    Campaign("plans", "well-formed plan files of the cache with other entries, types, shapes, fields, schemas or of"
             " another loop", "the loop's answer is right, and nothing crashes", plan_attempt, few=1, many=600),
    Campaign("libraries", "damaged, cut or foreign libraries in the cache; pipes, folders, links and rights of others"
             " in place of files and folders", "the right function, or one line", library_attempt, few=4, many=250),
    Campaign("forks", "programs of loops, replays, sorts and line solvers with forked children, their children and"
             " pools", "they end, with right answers", fork_attempt, few=1, many=100),
)  # fmt: skip
