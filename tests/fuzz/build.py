"""A case on a back end: sets, maps, fields and kernels made of it, its loops run one by one or as a program."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import meshloom as ml
from tests.fuzz.model import Case, LoopOf, Param, Statement
from tests.fuzz.tree import evaluate, source, text_of_index, text_of_literal

HAS_STRICT = "strict" in inspect.signature(ml.kernel).parameters


@dataclass(frozen=True)
class Way:
    """How a case runs: ``plain`` calls the kernels as Python functions; otherwise a back end with a schedule."""

    backend: str = "numpy"
    plain: bool = False
    strategy: str = "auto"
    variant: str = "plain"
    block: int | None = None
    order: str = "given"
    program: bool = False
    fuse: bool = True
    times: int = 1
    strict: bool = False

    def __str__(self) -> str:
        if self.plain:
            return "kernel.python"
        parts = [self.backend, self.strategy, *([] if self.variant == "plain" else [self.variant])]
        parts += [f"block={self.block}"] if self.block else []
        parts += [f"order={self.order}"] if self.order != "given" else []
        parts += [f"program fuse={self.fuse} x{self.times}"] if self.program else []
        return " ".join(parts + (["strict"] if self.strict else []))


def kernel_of(case: Case, loop: LoopOf, *, strict: bool = False) -> ml.Kernel:
    """The kernel of a loop: one interpreter, called with plain arrays or with symbols."""
    numbers = loop.numbers()
    shapes = [flat_shape(case, param) for param in loop.params]

    def interpret(*given: Any, **lifted: Any) -> None:
        params = [p if shape is None else p.reshape(shape) for p, shape in zip(given, shapes, strict=True)]
        known: dict[int, Any] = {id(node): lifted[name] for name, node in numbers.items()}
        if loop.ordered:
            for statement in loop.statements:
                _store(params[statement.param], statement, evaluate(statement.value, params, dict(known)))
            return
        made = [evaluate(s.value, params, known) for s in loop.statements]  # all is read before anything is written
        for statement, value in zip(loop.statements, made, strict=True):
            _store(params[statement.param], statement, value)

    ordinary = inspect.Parameter.POSITIONAL_OR_KEYWORD
    modes = [getattr(ml, p.mode) for p in loop.params]
    described = [inspect.Parameter(f"p{k}", ordinary, annotation=mode) for k, mode in enumerate(modes)]
    described += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=ml.Read) for name in numbers]
    interpret.__signature__ = inspect.Signature(described)  # type: ignore[attr-defined]
    interpret.__name__ = "fuzzed"
    return ml.kernel(strict=True)(interpret) if strict else ml.kernel(interpret)


def flat_shape(case: Case, param: Param) -> tuple[int, ...] | None:
    """The shape that an argument has once its components are in a row; None where they are anyway."""
    storage = case.storages[param.which]
    if storage.components is None:
        return None
    arity = () if param.through is None else case.maps[param.through].rows.shape[1:]
    return (*arity, storage.dim)


def _store(param: Any, statement: Statement, value: Any) -> None:
    index = statement.index if len(statement.index) != 1 else statement.index[0]
    if statement.op == "=":
        param[index if statement.index else ...] = value
    elif statement.index:
        if statement.op == "+=":
            param[index] += value
        elif statement.op == "-=":
            param[index] -= value
        else:
            param[index] *= value
    elif statement.op == "+=":
        param += value
    elif statement.op == "-=":
        param -= value
    else:
        param *= value


class Built:
    """The objects of a case."""

    def __init__(self, case: Case, *, strict: bool = False):
        self.case = case
        self.sets = [self._set(k) for k in range(len(case.sets))]
        wide = {True: np.int64, False: None}
        self.maps = [
            ml.Map(self.sets[m.source], self.sets[m.target], m.rows, f"m{k}", dtype=wide[m.wide])
            for k, m in enumerate(case.maps)
        ]
        self.storages = [self._storage(k) for k in range(len(case.storages))]
        self.kernels = [kernel_of(case, loop, strict=strict) for loop in case.loops]

    def _set(self, k: int) -> Any:
        s = self.case.sets[k]
        if s.grid is not None:
            return s.grid.make(f"s{k}")
        return ml.Set(s.size, f"s{k}", halo=s.halo, numbering=s.numbering)

    def _storage(self, k: int) -> Any:
        s = self.case.storages[k]
        if s.on is None:
            return ml.Global(s.data, f"g{k}", dtype=s.data.dtype)
        field = self.sets[s.on].field(f"f{k}", s.components or s.dim, dtype=s.data.dtype, layout=s.layout)
        rows = s.data.reshape(field.set.total, field.dim)  # of a grid the places of ghosts and beside rows, too
        field.assign_rows(field.set.by_position(rows))
        return field

    def over(self, loop: LoopOf) -> Any:
        """What a loop runs over: a set, or a box of a grid."""
        return self.sets[loop.over] if loop.box is None else self.sets[loop.over].box(*loop.box)

    def argument(self, param: Param) -> Any:
        storage = self.storages[param.which]
        if param.through is not None:
            return storage[self.maps[param.through]]
        if param.offsets:
            return storage[storage.set.offsets(*param.offsets)]
        return storage

    def arguments(self, loop: LoopOf) -> list[Any]:
        return [self.argument(p) for p in loop.params]

    def numbers(self, loop: LoopOf) -> dict[str, Any]:
        return {name: node.value for name, node in loop.numbers().items()}

    def results(self) -> list[np.ndarray]:
        return [s.numpy() if isinstance(s, ml.Global) else s.numbered().reshape(d.data.shape)
                for s, d in zip(self.storages, self.case.storages, strict=True)]  # fmt: skip


def run(case: Case, way: Way) -> list[np.ndarray]:
    """All fields and Globals afterwards, in the order of the case; raises what Meshloom raises."""
    ml.use("numpy" if way.plain else way.backend)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = Built(case, strict=way.strict)
        if way.plain:
            for _ in range(way.times):
                for kernel, loop in zip(built.kernels, case.loops, strict=True):
                    kernel.python(built.over(loop), *built.arguments(loop), **built.numbers(loop))
        elif way.program:
            _program(built, way).run(way.times)
        else:
            for _ in range(way.times):
                for kernel, loop in zip(built.kernels, case.loops, strict=True):
                    _loop(built, kernel, loop, way)()
        return built.results()


def _program(built: Built, way: Way) -> Any:
    @ml.program(fuse=way.fuse)
    def step() -> None:
        for kernel, loop in zip(built.kernels, built.case.loops, strict=True):
            kernel(built.over(loop), *built.arguments(loop), **built.numbers(loop))

    return step


def _loop(built: Built, kernel: ml.Kernel, loop: LoopOf, way: Way) -> Callable[[], None]:
    """The loop with the wished schedule, or the automatic one where the strategy declines."""
    on, arguments, numbers = built.over(loop), built.arguments(loop), built.numbers(loop)
    wished = ml.Schedule(way.strategy, block=way.block, order=way.order, variant=way.variant)
    made = kernel.loop(on, *arguments, schedule=wished, **numbers)
    return made if made.applies else kernel.loop(on, *arguments, **numbers)


# --- as a program to paste ------------------------------------------------------------------------------------------


def script(case: Case, way: Way) -> str:
    """A program that shows the case: the kernels as Python source, run plainly and this way."""
    lines = ["import numpy as np", "import meshloom as ml", "from numpy import inf, nan", ""]
    for k, loop in enumerate(case.loops):
        names = [f"p{n}" for n in range(len(loop.params))]
        head = ", ".join(f"{n}: ml.{p.mode}" for n, p in zip(names, loop.params, strict=True))
        lifted = {id(node): name for name, node in loop.numbers().items()}
        head += ", *, " + ", ".join(f"{name}: ml.Read" for name in lifted.values()) if lifted else ""
        lines += [f"@ml.kernel{'(strict=True)' if way.strict else ''}", f"def kernel{k}({head}):"]
        for n, shape in enumerate(flat_shape(case, p) for p in loop.params):
            if shape is not None:
                names[n] = f"q{n}"
                lines.append(f"    q{n} = p{n}.reshape({shape})")
        for together in [[s] for s in loop.statements] if loop.ordered else [loop.statements]:
            shared, texts = source([s.value for s in together], names, lifted)
            lines += [f"    {line}" for line in shared]
            for s, text in zip(together, texts, strict=True):
                index = text_of_index(s.index) or ("[...]" if s.op == "=" else "")
                lines.append(f"    {names[s.param]}{index} {s.op} {text}")
        lines.append("")
    lines += ["def run(way):"]
    lines += [f"    {line}" for line in _objects_text(case)]
    lines += [f"    for _ in range({way.times}):"]
    for k, loop in enumerate(case.loops):
        box = f".box{loop.box}" if loop.box else ""
        given = ", ".join([f"s{loop.over}{box}", *(_argument_text(p) for p in loop.params),
                           *(f"{name}={text_of_literal(n.value)}" for name, n in loop.numbers().items())])  # fmt: skip
        lines += [f'        kernel{k}.python({given}) if way == "plain" else kernel{k}({given})']
    seen = ["numpy()" if s.on is None else f"numbered().reshape({s.data.shape})" for s in case.storages]
    names = ", ".join(f"f{k}.{text}" for k, text in enumerate(seen))
    lines += [f"    return [{names}]", "", f'ml.use("{way.backend}")  # {way}']
    return "\n".join([*lines, 'for a, b in zip(run("plain"), run("compiled")):', "    print(a, b, sep='\\n')"])


def _objects_text(case: Case) -> list[str]:
    lines = []
    for k, s in enumerate(case.sets):
        more = f", halo={s.halo}" if s.halo else ""
        more += f", numbering={s.numbering}" if s.numbering is not None else ""
        lines.append(f"s{k} = ml.Set({s.size}{more})" if s.grid is None
                     else f"s{k} = {s.grid}")  # fmt: skip
    for k, m in enumerate(case.maps):
        lines.append(f"m{k} = ml.Map(s{m.source}, s{m.target}, np.array({m.rows.tolist()}, int)"
                     f".reshape({m.rows.shape}){', dtype=np.int64' if m.wide else ''})")  # fmt: skip
    for k, s in enumerate(case.storages):
        data = f"np.array({s.data.tolist()!r}, np.{s.data.dtype.name}).reshape({s.data.shape})"
        if s.on is None:
            lines.append(f"f{k} = ml.Global({data}, dtype=np.{s.data.dtype.name})")
        else:
            layout = f", layout={s.layout!r}" if s.layout else ""
            lines.append(f"f{k} = s{s.on}.field('f{k}', {s.components or s.dim}, dtype=np.{s.data.dtype.name}{layout})")
            lines.append(f"f{k}.assign_rows(f{k}.set.by_position({data}.reshape(-1, f{k}.dim)))")
    return lines


def _argument_text(param: Param) -> str:
    if param.through is not None:
        return f"f{param.which}[m{param.through}]"
    if param.offsets:
        return f"f{param.which}[f{param.which}.set.offsets({', '.join(map(str, param.offsets))})]"
    return f"f{param.which}"


def rows_seen(built: Built, loop: LoopOf, param: Param) -> Sequence[np.ndarray]:
    """For every slot of a field's argument the numbers of the elements it sees, (elements,)."""
    case = built.case
    size = case.sets[loop.over].size
    if param.through is not None:
        rows = case.maps[param.through].rows[:size]
        return [rows[:, k] for k in range(rows.shape[1])]
    if case.sets[loop.over].grid is not None:
        points = _points(built, loop)
        return [points.rows(o) for o in param.offsets or (None,)]
    return [np.arange(size)]


def elements(built: Built, loop: LoopOf) -> int:
    """How many elements a loop runs over."""
    own = built.case.sets[loop.over]
    return own.size if own.grid is None else len(_points(built, loop).rows(None))


def _points(built: Built, loop: LoopOf) -> Any:
    return built.sets[loop.over].inside if loop.box is None else built.over(loop)
