"""Random cases: sets, maps, fields and programs of random kernels, drawn from a ``random.Random``."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.model import Case, GridOf, Index, LoopOf, MapOf, Param, SetOf, Statement, Storage
from tests.fuzz.numbers import values
from tests.fuzz.tree import BadExpression, Node, literal, load, operate

FLOATS, INTS = (np.dtype("float64"), np.dtype("float32")), (np.dtype("int32"), np.dtype("int64"))
LAYOUTS = ("aos", "soa", "aosoa4", "aosoa3")


def draw(seed: int, known: frozenset[str] = frozenset()) -> Case:
    """The case of a number. ``known``: what is left out because it is known to differ."""
    return _varied(_Drawing(Random(seed), known).case(seed), Random(f"forms of {seed}"))


COMPONENTS = {2: ((2, 1), (1, 2)), 3: ((3, 1), (1, 1, 3)), 4: ((2, 2), (4, 1))}


def _varied(case: Case, random: Random) -> Case:
    """The same in other forms, drawn apart from all that makes the case: components with shape, lifted literals."""
    at_offsets = {p.which for loop in case.loops for p in loop.params if p.offsets}
    storages = list(case.storages)
    for k, s in enumerate(storages):
        if s.on is not None and s.dim > 1 and k not in at_offsets and random.random() < 0.3:
            storages[k] = replace(s, components=random.choice(COMPONENTS[s.dim]))
    loops = tuple(replace(loop, lifted=random.random() < 0.25) for loop in case.loops)
    return replace(case, storages=tuple(storages), loops=loops)


# --- everything else ------------------------------------------------------------------------------------------------


class _Drawing:
    def __init__(self, random: Random, known: frozenset[str]):
        self.random, self.known = random, known

    def case(self, seed: int) -> Case:
        r = self.random
        grid = r.random() < 0.2
        self.sets = self._grids() if grid else self._sets()
        self.maps = [] if grid else self._maps()
        self.storages: list[Storage] = []
        count = 1 if r.random() < 0.6 else r.randint(2, 4)
        loops = [self._loop(first=k == 0) for k in range(count)]
        return Case(tuple(self.sets), tuple(self.maps), tuple(self.storages), tuple(loops), seed, self.known)

    def _grids(self) -> list[SetOf]:
        r, rank = self.random, self.random.choice((1, 2, 2, 3))
        shape = tuple(r.randint(3, (40, 9, 6)[rank - 1]) for _ in range(rank))
        ghosts = tuple(r.choice((0, 1, 2)) for _ in range(rank)) if r.random() < 0.3 else (0,) * rank
        periodic = tuple(r.random() < 0.5 for _ in range(rank))
        return [GridOf(shape, periodic, ghosts, r.random() < 0.3).as_set()]

    def _box(self, grid: GridOf) -> tuple[Index, Index] | None:
        """Part of the grid to loop over, ghosts included, or nothing."""
        r = self.random
        if r.random() < 0.4:
            return None
        low = [r.randint(-g, n // 2 - 1) for n, g in zip(grid.shape, grid.ghosts, strict=True)]
        high = [r.randint(max(a + 1, n // 2), n + g) for n, g, a in zip(grid.shape, grid.ghosts, low, strict=True)]
        return tuple(low), tuple(high)

    def _sets(self) -> list[SetOf]:
        r = self.random
        sets = []
        for _ in range(r.randint(2, 3)):
            size, halo = r.choice((0, 1, 2, 7, 32, 33, r.randint(3, 80), r.randint(3, 80))), r.choice((0, 0, 0, 3))
            if sets and not sets[0].total and size == 0:
                size = 5
            numbering = None
            if size + halo and r.random() < 0.25:
                owned, ghosts = list(range(size)), list(range(size, size + halo))
                r.shuffle(owned)
                r.shuffle(ghosts)
                numbering = (*owned, *ghosts)
            sets.append(SetOf(size, halo, numbering))
        return sets

    def _maps(self) -> list[MapOf]:
        r, maps = self.random, []
        for _ in range(r.randint(1, 3)):
            source, target = r.randrange(len(self.sets)), r.randrange(len(self.sets))
            rows, columns, into = self.sets[source].total, r.choice((1, 2, 2, 2, 3, 4)), self.sets[target].total
            if not into:
                continue
            rng = np.random.default_rng(r.randrange(2**32))
            if r.random() < 0.25 and rows * columns <= into:
                array = rng.permutation(into)[: rows * columns].reshape(rows, columns)
            elif r.random() < 0.4:  # neighbours have neighbouring numbers, as on a real mesh
                array = (np.arange(rows)[:, None] * into // max(rows, 1) + rng.integers(0, 3, (rows, columns))) % into
            else:
                array = rng.integers(0, into, (rows, columns))
            maps.append(MapOf(source, target, array.astype(np.int64), r.random() < 0.2))
        return maps

    # ----- a loop -----------------------------------------------------------------------------------------------------
    def _loop(self, *, first: bool) -> LoopOf:
        r = self.random
        starts = [m.source for m in self.maps]
        over = r.choice(starts) if starts and r.random() < 0.85 else r.randrange(len(self.sets))
        grid = self.sets[over].grid
        self.box = self._box(grid) if grid is not None else None
        params: list[Param] = []
        for _ in range(r.randint(2, 4)):
            params.append(self._reading(over, params, again=not first))
        for _ in range(r.randint(1, 3)):
            params.append(self._writing(over, params, again=not first))
        self.params, self.over, self.pool = params, over, []
        self.ordered, self.set_already = r.random() < 0.4, set()
        statements: list[Statement] = []
        for number, param in enumerate(params):
            if param.mode != "Read":
                statements += self._statements(number, param)
        for number, param in enumerate(params) if self.ordered else ():
            if param.mode in ("Write", "ReadWrite") and r.random() < 0.7:
                statements += self._statements(number, param)
        return LoopOf(over, tuple(params), tuple(statements), self.ordered, self.box)

    def _reading(self, over: int, params: list[Param], *, again: bool) -> Param:
        r = self.random
        if r.random() < 0.15:
            return Param(self._storage(None, "Read", params, again), "Read")
        return self._place(over, "Read", params, again)

    def _writing(self, over: int, params: list[Param], *, again: bool) -> Param:
        r = self.random
        if self.sets[over] == SetOf(1) and r.random() < 0.5:  # a control loop
            mode = r.choice(("Write", "ReadWrite"))
            return Param(self._storage(None, mode, params, again), mode)
        if r.random() < 0.2:
            mode = r.choice(("Sum", "Sum", "Min", "Max"))
            return Param(self._storage(None, mode, params, again=False), mode)
        return self._place(over, r.choice(("Write", "ReadWrite", "Inc", "Inc", "Inc", "Min", "Max")), params, again)

    def _place(self, over: int, mode: str, params: list[Param], again: bool) -> Param:
        """A field where the loop is, through a map, or at offsets."""
        r = self.random
        grid = self.sets[over].grid
        usable = [k for k, m in enumerate(self.maps) if m.source == over]
        if mode in ("Write", "ReadWrite"):
            usable = [k for k in usable if self.maps[k].distinct]
        if grid is None and usable and r.random() < (0.75 if mode != "ReadWrite" else 0.3):
            through = r.choice(usable)
            return Param(self._storage(self.maps[through].target, mode, params, again), mode, through)
        which = self._storage(over, mode, params, again)
        offsets: tuple[Index, ...] = ()
        if grid is not None and mode == "Read" and r.random() < 0.8:
            low, high = self.box or ((0,) * len(grid.shape), grid.shape)
            ends = [grid.steps(axis, *at) for axis, at in enumerate(zip(low, high, strict=True))]
            steps = [tuple(r.randint(-down, up) for down, up in ends) for _ in range(r.randint(1, 4))]
            offsets = tuple(dict.fromkeys(steps))
        return Param(which, mode, None, offsets)

    def _storage(self, on: int | None, mode: str, params: list[Param], again: bool) -> int:
        """A new field or Global, or one that an earlier loop has used."""
        r = self.random
        written = {p.which for p in params if p.mode != "Read"}
        used = {p.which for p in params}
        free = [k for k, s in enumerate(self.storages) if s.on == on and k not in (written if mode == "Read" else used)]
        if free and r.random() < (0.6 if again else 0.1 if mode == "Read" else 0.0):
            return r.choice(free)
        dtype = r.choice((*FLOATS, *FLOATS, *FLOATS, *INTS))
        dim = r.choice((1, 1, 1, 2, 3, 4))
        rows = () if on is None else (self.sets[on].total,)
        shape = rows + ((dim,) if dim > 1 else ())
        data = values(r, dtype, shape, self.known)
        self.storages.append(Storage(data, dim, on, r.choice((None, *LAYOUTS)) if on is not None else None))
        return len(self.storages) - 1

    def _shape(self, param: Param) -> tuple[int, ...]:
        """As the kernel sees it."""
        dim = self.storages[param.which].dim
        arity = (self.maps[param.through].rows.shape[1],) if param.through is not None else ()
        return arity + ((dim,) if dim > 1 else ())

    def _statements(self, number: int, param: Param) -> list[Statement]:
        r = self.random
        dtype, shape = self.storages[param.which].data.dtype, self._shape(param)
        must = param.mode == "Write"
        made: list[Statement] = []
        whole = len(shape) >= 1 and self.storages[param.which].dim > 1 and r.random() < 0.5
        entries = list(np.ndindex(shape[:-1] if whole else shape))
        for index in entries:
            if not must and made and r.random() < 0.25:
                continue
            op = "="
            if param.mode in ("Inc", "Sum") or (param.mode == "ReadWrite" and r.random() < 0.3):
                op = r.choice(("+=", "+=", "-=", *(("*=",) if param.mode == "ReadWrite" else ())))
            value = self._value(dtype, shape[-1] if whole else 0, assigned=op == "=" and param.mode[-5:] == "Write")
            made.append(Statement(number, tuple(map(int, index)), op, value))
            parts: list[tuple[int, ...]] = [(k,) for k in range(shape[-1])] if whole else [()]
            self.set_already |= {(number, *index, *part) for part in parts if self.ordered}
        return made

    def _value(self, dtype: np.dtype, dim: int, *, assigned: bool) -> Node:
        """Something for a field of a type. What is ``assigned`` to integers may be of any type, if it fits."""
        r = self.random
        free = dtype.kind == "f" or (assigned and r.random() < 0.6)
        want = "any" if dtype.kind == "f" else r.choice(("float", "int")) if free else "int"
        depth = r.choice((1, 2, 2, 3, 4))
        value = self._vector(want, depth, dim) if dim else self._scalar(want, depth)
        if dtype.kind == "f" or _fits(value, dtype):
            return value
        if not free:
            return literal(r.choice((1, -2, 5)))
        if value.weak:
            return literal(3)
        small = operate("lt", operate("abs", value), literal(2.0**30 if value.kind == "float" else 2**30))
        return operate("where", small, value, literal(7))

    # ----- expressions ------------------------------------------------------------------------------------------------
    def _try(self, op: str, *args: Node, value: Any = None) -> Node | None:
        try:
            node = operate(op, *args, value=value)
        except BadExpression:
            return None
        self.pool.append(node)
        return node

    def _leaf(self, want: str, shape: tuple[int, ...]) -> Node:
        r = self.random
        found = []
        for number, param in enumerate(self.params):
            if param.mode in ("Read", "ReadWrite", "Write"):
                found += self._loads(number, param, want, shape)
        if shape and not found:
            parts = [self._leaf(want, ()) for _ in range(shape[0])]
            if "mixed stacks" in self.known:
                parts = [p for p in parts if not p.weak] or parts
                parts = [parts[0]] * shape[0]
            if all(p.weak for p in parts):  # a number that is known only at run time
                choice = (1.5, 0.5) if want != "int" else (3, 5)
                sure = operate("gt", self._some_load(), literal(0))
                number = operate("where", sure, *map(literal, choice))
                parts = [number] * shape[0] if "mixed stacks" in self.known else [number, *parts[1:]]
            return operate("stack", *parts)
        if not found or (not shape and r.random() < 0.2):
            return self._literal(want)
        return r.choice(found)

    def _loads(self, number: int, param: Param, want: str, shape: tuple[int, ...]) -> list[Node]:
        storage = self.storages[param.which]
        kind = "int" if storage.data.dtype.kind == "i" else "float"
        if want not in (kind, "any"):
            return []
        changes = param.mode != "Read"
        heads: list[tuple[Any, ...]] = [()]
        if param.offsets:
            heads = [(o,) for o in param.offsets]
        elif param.through is not None:
            heads = [(k,) for k in range(self.maps[param.through].rows.shape[1])]
        if shape:
            whole = storage.dim > 1 and shape == (storage.dim,)
            heads = [h for h in heads if all(self._readable(number, (*h, k)) for k in range(storage.dim))]
            return [load(number, h, storage.data.dtype, shape, changes=changes) for h in heads] if whole else []
        tails: list[tuple[int, ...]] = [(k,) for k in range(storage.dim)] if storage.dim > 1 else [()]
        places = [(*h, *t) for h in heads for t in tails if self._readable(number, (*h, *t))]
        return [load(number, place, storage.data.dtype, (), changes=changes) for place in places]

    def _readable(self, number: int, place: tuple[Any, ...]) -> bool:
        """What is only written can be read where it has been set before."""
        return self.params[number].mode != "Write" or (number, *place) in self.set_already

    def _literal(self, want: str) -> Node:
        r = self.random
        typed = "typed literals" not in self.known and r.random() < 0.25
        if want == "int" or (want == "any" and r.random() < 0.3):
            whole = (np.int32(5), np.int64(-3), np.int64(2**40)) if typed else (0, 1, 2, 3, -1, -7, 31)
            return literal(r.choice(whole))
        return literal(r.choice((np.float32(0.3), np.float64(1.7)) if typed else PLAIN_FLOATS))

    def _again(self, want: str, shape: tuple[int, ...]) -> Node | None:
        found = [n for n in self.pool if n.shape == shape and want in (n.kind, "any") and n.kind != "bool"]
        return self.random.choice(found) if found and self.random.random() < 0.15 else None

    def _scalar(self, want: str, depth: int) -> Node:
        r = self.random
        shared = self._again(want, ())
        if shared is not None:
            return shared
        if depth <= 0:
            return self._leaf(want, ())
        makers = (self._integer,) if want == "int" else (self._float,) if want == "float" else (self._float,) * 3 + (
            self._integer,)  # fmt: skip
        for _ in range(8):
            node = r.choice(makers)(depth - 1)
            if node is not None and want in (node.kind, "any") and node.kind != "bool":
                return node
        return self._leaf(want, ())

    def _pair(self, want: str, depth: int) -> tuple[Node, Node]:
        return self._scalar(want, depth), self._scalar(want, depth)

    def _float(self, depth: int) -> Node | None:
        r = self.random
        op = r.choices(FLOAT_OPS, FLOAT_WEIGHTS)[0]
        if (op == "floordiv" and "float floordiv" in self.known) or (op == "cbrt" and "cbrt" in self.known):
            op = "sub"
        if op == "where":
            return self._try("where", self._bool(depth), *self._pair("any", depth))
        if op == "pow":
            exponent = literal(r.choice((2, 3, 2, 4, -1, -2, 0.5, 1.5, 2.0, 0, 5, np.float32(2.5))))
            return self._try("pow", self._scalar("float", depth), exponent)
        if op == "astype":
            return self._try("astype", self._scalar("any", depth), value=r.choice(FLOATS))
        if op == "clip":
            return self._try("clip", self._scalar("float", depth), literal(r.choice((-1.0, 0.0))), literal(2.0))
        if op in REDUCTIONS:
            return self._reduced(op, "float", depth)
        if op in UNARY:
            return self._try(op, self._scalar("float", depth))
        return self._try(op, *self._pair("any" if r.random() < 0.4 else "float", depth))

    def _integer(self, depth: int) -> Node | None:
        r = self.random
        without = ("invert", "lshift", "rshift") if "shifts and inverts" in self.known else ()
        without += ("sum", "prod", "dot") if "integer sums" in self.known else ()
        op = r.choice([o for o in INTEGER_OPS if o not in without])
        if op == "where":
            return self._try("where", self._bool(depth), *self._pair("int", depth))
        if op == "pow":
            return self._try("pow", self._scalar("int", depth), literal(r.choice((0, 1, 2, 3))))
        if op == "astype":
            return self._try("astype", self._scalar("int", depth), value=r.choice(INTS))
        if op in ("sum", "max", "min", "prod", "dot"):
            return self._reduced(op, "int", depth)
        if op in ("neg", "abs", "sign", "invert"):
            return self._try(op, self._scalar("int", depth))
        if op == "count":  # truth values as numbers
            truth = self._bool(depth)
            if r.random() < 0.5 and "bool arithmetic" not in self.known:
                truth = self._try(r.choice(("add", "mul", "maximum")), truth, self._bool(depth)) or truth
            return self._try("add", truth, self._scalar("int", depth))
        return self._try(op, *self._pair("int", depth))

    def _bool(self, depth: int) -> Node:
        r = self.random
        for _ in range(8):
            op = r.choice(BOOL_OPS)
            if op in ("and", "or", "xor", "logical_and", "logical_or", "logical_xor"):
                made = self._try(op, self._bool(depth - 1), self._bool(depth - 1)) if depth > 0 else None
            elif op in ("invert", "logical_not"):
                made = self._try(op, self._bool(depth - 1)) if depth > 0 else None
            elif op in ("isnan", "isinf", "isfinite"):
                made = self._try(op, self._scalar("float", depth - 1))
            else:
                made = self._try(op, *self._pair(r.choice(("float", "int", "any")), depth - 1))
            if made is not None and made.kind == "bool" and not made.shape:
                return made
        return operate("gt", self._some_load(), literal(0))

    def _some_load(self) -> Node:
        reading = [(k, p) for k, p in enumerate(self.params) if p.mode == "Read"]
        number, param = self.random.choice(reading)
        return self.random.choice(self._loads(number, param, "any", ()))

    def _reduced(self, op: str, want: str, depth: int) -> Node | None:
        dim = self.random.choice((2, 3, 4))
        first = self._vector(want, depth, dim)
        return self._try(op, first, self._vector(want, depth, dim)) if op in ("dot", "matmul") else self._try(op, first)

    def _vector(self, want: str, depth: int, dim: int) -> Node:
        r = self.random
        if depth <= 0 or r.random() < 0.3:
            return self._leaf(want, (dim,))
        for _ in range(6):
            roll = r.random()
            if roll < 0.2 and "mixed stacks" not in self.known:
                made = self._try(r.choice(("stack", "array")), *(self._scalar(want, depth - 1) for _ in range(dim)))
            elif roll < 0.25 and "lists" not in self.known:
                numbers = [self._literal(want).value for _ in range(dim)]
                made = self._try(r.choice(("add", "mul", "maximum")), self._vector(want, depth - 1, dim),
                                 literal([getattr(n, "item", lambda n=n: n)() for n in numbers]))  # fmt: skip
            elif roll < 0.35:
                made = self._try("where", self._bool(depth - 1), self._vector(want, depth - 1, dim),
                                 self._vector(want, depth - 1, dim))  # fmt: skip
            else:
                op = r.choice(("add", "sub", "mul", "minimum", "maximum") + (("div",) if want != "int" else ()))
                other = self._scalar(want, depth - 1) if r.random() < 0.5 else self._vector(want, depth - 1, dim)
                made = self._try(op, self._vector(want, depth - 1, dim), other)
            if made is not None and made.shape == (dim,) and want in (made.kind, "any"):
                return made
        return self._leaf(want, (dim,))


PLAIN_FLOATS = (0.0, 1.0, 0.5, 2.0, -1.5, 0.1, 3.7, 1e-3, 1e3, -0.0, 2)
REDUCTIONS = ("sum", "prod", "mean", "max", "min", "norm", "dot", "matmul")
UNARY = ("neg", "abs", "fabs", "sqrt", "square", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin",
         "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "sign", "floor", "ceil", "trunc",
         "rint")  # fmt: skip
FLOAT_WEIGHTS_BY_OP = {
    "add": 8, "sub": 8, "mul": 8, "div": 5, "where": 4, "minimum": 3, "maximum": 3, "pow": 4, "clip": 1, "mod": 1.5,
    "fmin": 0.7, "fmax": 0.7, "astype": 2, "float_power": 0.4,
    "floordiv": 1.5, "hypot": 0.7, "arctan2": 0.7, "copysign": 1, "neg": 2, "abs": 2, "fabs": 0.5, "sqrt": 3,
    "square": 1, "sign": 1, "floor": 1, "ceil": 0.7, "trunc": 0.7, "rint": 0.7,
} | dict.fromkeys(REDUCTIONS, 0.7) | dict.fromkeys(UNARY[5:22], 0.4)  # fmt: skip
FLOAT_OPS, FLOAT_WEIGHTS = tuple(FLOAT_WEIGHTS_BY_OP), tuple(FLOAT_WEIGHTS_BY_OP.values())
INTEGER_OPS = ("add", "sub", "mul", "add", "sub", "mul", "floordiv", "mod", "abs", "neg", "sign", "and", "or", "xor",
               "invert", "lshift", "rshift", "minimum", "maximum", "where", "pow", "sum", "max", "min", "dot",
               "count", "astype", "astype")  # fmt: skip
BOOL_OPS = ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor", "invert", "isnan", "isinf", "isfinite",
            "logical_and", "logical_or", "logical_xor", "logical_not")  # fmt: skip


def _fits(value: Node, dtype: np.dtype) -> bool:
    """May NumPy assign it? It refuses values of 64 bits that do not fit into 32, and truncates floats."""
    return value.kind != "float" and (value.dtype.itemsize <= dtype.itemsize or value.weak)
