"""Every operation of the table, on special values of every type and on every back end, with NumPy as the judge.

The table itself says what is tested: an entry that is added to ``OPS`` is compared here without being named.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from platform import machine
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError
from meshloom.kernel.expr import C_TYPES, OPS, load
from meshloom.kernel.symbols import Symbol, SymbolArray
from meshloom.kernel.table import LOOKUPS
from tests.backend.test_cuda import CompileBackend, needs_nvrtc

BACK_ENDS = ("python", "numpy", "cpu", "emulated")
TYPES = ("bool", "int32", "int64", "float32", "float64")
FIELDS = TYPES[1:]


def special_values(name: str) -> np.ndarray:
    """The values at which operations go wrong."""
    if name == "bool":
        return np.array([False, True])
    if name.startswith("int"):
        i = np.iinfo(name)
        numbers = [0, 1, -1, 2, -2, 3, 5, -7, 31, 32, 33, 63, 64, 46341, i.min, i.min + 1, i.max, i.max - 1]
        return np.array(numbers, name)
    f = np.finfo(name)
    small = [f.smallest_subnormal, -f.smallest_subnormal, f.tiny, -f.tiny, f.tiny / 3, f.eps]
    large = [f.max, -f.max, f.max / 3, 2.0**31, -(2.0**31), 2.0**63, 1e10]
    usual = [0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.5, -1.5, 2.5, -2.5, 3.0, 27.0]
    return np.array([np.nan, np.inf, -np.inf, *usual, *small, *large], name)


@dataclass(frozen=True)
class Case:
    """A function of one or two values; ``exact``: every bit counts, but for the sign of zero where ``unsigned``."""

    name: str
    of: Callable[..., Any]
    arity: int
    exact: bool = True
    unsigned: bool = False

    def by_numpy(self, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """What NumPy gives; None where it refuses, or gives a type that kernels do not know."""
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(self.of(*(a, b)[: self.arity]))
        except (TypeError, ValueError):
            return None
        return np.broadcast_to(result, a.shape) if result.dtype in C_TYPES else None


def cases_of_the_table() -> Iterator[Case]:
    """One case for every entry of ``OPS``."""
    for name, op in OPS.items():
        exact, unsigned = op.kind != "special", op.kind == "minmax"
        if name in LOOKUPS:  # of tables: tests/kernel/test_tables.py
            continue
        if isinstance(op.numpy, np.ufunc):
            yield Case(name, op.numpy, op.numpy.nin, exact, unsigned)
        else:
            assert name == "where", f"{name} is no ufunc: say here how it is called"
            yield Case(name, lambda a, b: np.where(a, a, b), 2)


def power(exponent: float) -> Callable[[Any], Any]:
    return lambda a: a**exponent


def other_cases() -> Iterator[Case]:
    """Functions that are put together of entries, aliases of them, and Python's operators."""
    for ufunc in (np.fabs, np.square, np.positive, np.logical_and, np.logical_or, np.logical_xor):
        yield Case(ufunc.__name__, ufunc, ufunc.nin)
    for ufunc in (np.float_power, np.deg2rad, np.rad2deg, np.degrees, np.radians, np.reciprocal):
        yield Case(ufunc.__name__, ufunc, ufunc.nin, exact=False)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "rshift", "and_", "or_", "xor", "lt",
                 "le", "gt", "ge", "eq", "ne"):  # fmt: skip
        yield Case(f"operator {name}", getattr(operator, name), 2)
    for name in ("neg", "abs", "invert", "pos"):
        yield Case(f"operator {name}", getattr(operator, name), 1)
    for exponent in (0, 1, 2, 3, 5, -1, -2, 0.5, 1.5):
        yield Case(f"power {exponent}", power(exponent), 1, exact=False)
    yield Case("divmod", lambda a, b: divmod(a, b)[1], 2)
    yield Case("int32 of it", lambda a: a.astype(np.int32), 1)
    yield Case("int64 of it", lambda a: a.astype(np.int64), 1)
    yield Case("float32 of it", lambda a: a.astype(np.float32), 1)
    yield Case("truth of it", lambda a: a.astype(bool), 1)
    yield Case("one more is more", lambda a: a + 1 > a, 1)
    yield Case("clip", lambda a, b: np.clip(a, b, 3), 2, unsigned=True)


CASES = [*cases_of_the_table(), *other_cases()]
#: Refused for integers: NumPy raises at a negative exponent, and a kernel cannot.
REFUSED = {("pow", t) for t in TYPES} - {("pow", "float32"), ("pow", "float64")}
REFUSED |= {(f"power {e}", "bool") for e in (0, 1, 2, 3, 5)} | {("reciprocal", "int32"), ("reciprocal", "int64")}


def symbol(name: str, number: int) -> Symbol:
    if name == "bool":
        return symbol("int32", number) != 0
    return Symbol(load(number, 0, 0, np.dtype(name)))


def supported(name: str) -> list[tuple[Case, np.ndarray]]:
    """What kernels compute of a type, with what NumPy gives for all pairs of special values."""
    a, b = pairs(name)
    results = [(c, c.by_numpy(a, b)) for c in CASES if (c.name, name) not in REFUSED]
    return [(c, r) for c, r in results if r is not None]


def pairs(name: str) -> tuple[np.ndarray, np.ndarray]:
    values = special_values(name)
    a, b = zip(*product(values, values), strict=True)
    return np.array(a, name), np.array(b, name)


@pytest.mark.parametrize("name", TYPES)
def test_types_are_numpys_and_the_rest_is_refused_in_one_line(name: str) -> None:
    known = {c.name: r.dtype for c, r in supported(name)}
    assert len(known) > (30 if name == "bool" else 60)
    for case in CASES:
        try:
            result = case.of(*(symbol(name, 0), symbol(name, 1))[: case.arity])
        except KernelError as error:
            assert case.name not in known, f"{case.name} of {name} is refused: {error}"
            assert "\n" not in str(error) and "test_operations.py:" in str(error)
            continue
        assert case.name in known, f"{case.name} of {name} is not refused"
        assert result.node.dtype == known[case.name], case.name


@pytest.mark.parametrize(("left", "right"), list(product(TYPES, (*TYPES, "a number", "a float", "a truth"))))
def test_mixed_types_are_promoted_as_by_numpy(left: str, right: str) -> None:
    """Python's numbers are weak; NumPy's are not."""
    plain = {"a number": 3, "a float": 0.5, "a truth": True}
    compared = 0
    for case in CASES:
        if case.arity != 2:
            continue
        a = np.ones(2, left)
        b = plain[right] if right in plain else np.ones(2, right)
        operands = [plain[right]] if right in plain else [symbol(right, 1), np.dtype(right).type(1), np.ones((), right)]
        try:
            expected = case.of(a, b).dtype
        except TypeError:
            expected = None
        for operand in operands:
            for swapped in (False, True):
                if swapped and case.name == "clip":
                    continue  # its first operand is an array for NumPy, and so is never weak
                given = (operand, symbol(left, 0)) if swapped else (symbol(left, 0), operand)
                if expected is not None and swapped and right in plain:
                    expected = case.of(b, a).dtype
                try:
                    result = case.of(*given).node.dtype
                except KernelError:
                    continue
                assert result == expected, (case.name, operand, swapped)
                compared += 1
    assert compared > 20


def kernel_of(name: str, cases: list[tuple[Case, np.ndarray]]) -> tuple[ml.Kernel, dict[str, list[Case]]]:
    """One kernel for all cases: results are stored in the widest type of their kind, which changes none of them."""
    kinds = {kind: [c for c, r in cases if r.dtype.kind == kind] for kind in "bif"}

    def everything(a: ml.Read, b: ml.Read, truth: ml.Write, whole: ml.Write, real: ml.Write):
        if name == "bool":
            a, b = a != 0, b != 0
        for kind, out in (("b", truth), ("i", whole), ("f", real)):
            for k, case in enumerate(kinds[kind]):
                out[k] = case.of(*(a, b)[: case.arity])

    return ml.kernel(everything), kinds


def everything_of(
    name: str, cases: list[tuple[Case, np.ndarray]]
) -> tuple[ml.Kernel, dict[str, list[Case]], ml.Set, list[ml.Field]]:
    """The kernel of all cases with the fields that it takes: all pairs of special values, and room for results."""
    kernel, kinds = kernel_of(name, cases)
    stored = "int32" if name == "bool" else name
    values = [v.astype(stored) for v in pairs(name)]
    on = ml.Set(len(values[0]))
    fields = [on.field(n, data=v, dtype=stored) for n, v in zip("ab", values, strict=True)]
    types = {"b": "int32", "i": "int64", "f": "float64"}
    return kernel, kinds, on, fields + [on.field(kind, len(kinds[kind]), dtype=t) for kind, t in types.items()]


@needs_nvrtc
@pytest.mark.parametrize("name", TYPES)
def test_operations_compile_for_a_device(name: str) -> None:
    ml.use("numpy")
    kernel, _, on, fields = everything_of(name, supported(name))
    loop, backend = kernel.loop(on, *fields), CompileBackend(("sm_90",))
    loop.on(backend).prepare()
    assert len(backend.engine.resources) == 1


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("name", TYPES)
def test_values_are_numpys(name: str, back_end: str) -> None:
    cases, (a, b) = supported(name), pairs(name)
    if back_end != "python":
        ml.use(back_end)
    kernel, kinds, on, fields = everything_of(name, cases)
    with np.errstate(all="ignore"):
        (kernel.python if back_end == "python" else kernel)(on, *fields)
    results = {id(c): f.numpy().reshape(len(a), -1)[:, k]
               for kind, f in zip("bif", fields[2:], strict=True) for k, c in enumerate(kinds[kind])}  # fmt: skip
    wrong = [text for c, expected in cases for text in differences(c, a, b, results[id(c)], expected, back_end)]
    assert len(cases) > (30 if name == "bool" else 60) and not wrong, "\n".join(wrong)


def differences(
    case: Case, a: np.ndarray, b: np.ndarray, result: np.ndarray, expected: np.ndarray, back_end: str
) -> list[str]:
    """A line for a case that differs, at the first pair where it does."""
    result, skipped = result.astype(expected.dtype), np.zeros(len(a), bool)
    if case.name.startswith("int") and a.dtype.kind == "f":
        low = np.iinfo(expected.dtype).min
        outside = ~(np.abs(a.astype(np.longdouble) + 0.5) < -np.longdouble(low) + 0.5)
        skipped = outside & (back_end == "python") & (machine() != "x86_64")  # NumPy's own is the machine's
        expected = np.where(outside, low, expected).astype(expected.dtype)
    if case.name in ("pow", "float_power"):  # a sqrt for one exponent of 0.5, a power for an array of them
        skipped |= (b == 0.5) & np.signbit(a) & (np.isinf(a) | (a == 0))
    same = result == expected
    if expected.dtype.kind == "f":
        if not case.exact:
            f = np.finfo(expected.dtype)
            with np.errstate(all="ignore"):
                near = np.abs(result - expected) <= 8 * f.eps * np.abs(expected) + f.tiny * f.eps * 8
            flushed = case.name.startswith("power") and (np.abs(expected) < f.tiny) & (result == 0)
            same |= np.isfinite(expected) & (near | flushed)
        same |= np.isnan(result) & np.isnan(expected)
        signs = np.signbit(result) == np.signbit(expected)
        same &= signs | (result != 0) | (case.unsigned & (expected == 0))
    wrong = np.flatnonzero(~same & ~skipped)
    shown = [f"{case.name} of {a[k]!r}, {b[k]!r}: {result[k]!r}, by NumPy {expected[k]!r}" for k in wrong[:1]]
    return [f"{text} (and {len(wrong) - 1} more)" for text in shown]


def test_every_entry_of_the_table_is_computed_for_some_type_on_every_back_end() -> None:
    computed = {c.name for name in TYPES for c, _ in supported(name)}
    assert set(OPS) - computed == set(LOOKUPS)  # of tables: tests/kernel/test_tables.py


# --- functions of arrays --------------------------------------------------------------------------------------------
ARRAYS: dict[str, Callable[[Any], Any]] = {
    "sum": np.sum, "sum of rows": lambda m: np.sum(m, axis=1), "prod": np.prod, "cumsum": np.cumsum, "mean": np.mean,
    "mean of columns": lambda m: np.mean(m, axis=0), "var": np.var, "std of rows": lambda m: np.std(m, axis=1),
    "method std": lambda m: m.std(), "trace": np.trace, "dot": lambda m: np.dot(m, m), "matmul": lambda m: m @ m,
    "inner": lambda m: np.inner(m, m), "outer": lambda m: np.outer(m[0], m[1]), "vdot": lambda m: np.vdot(m, m),
    "einsum": lambda m: np.einsum("ij,kj->ik", m, m), "tensordot": lambda m: np.tensordot(m, m),
    "cross": lambda m: np.cross(m.ravel()[:3], m.ravel()[1:]), "diff": np.diff, "max": np.max,
    "min": lambda m: np.min(m, axis=0), "any": np.any, "all": lambda m: np.all(m, axis=1),
    "any of one": lambda m: np.any(m[:1, 0]), "norm": np.linalg.norm, "det": np.linalg.det,
    "method sum": lambda m: m.sum(), "method prod": lambda m: m.prod(axis=0), "method mean": lambda m: m.mean(),
    "method max": lambda m: m.max(), "method cumsum": lambda m: m.cumsum(), "method trace": lambda m: m.trace(),
    "method any": lambda m: m.any(), "method clip": lambda m: m.clip(0, 1),
    "add.reduce": lambda m: np.add.reduce(m, axis=None), "stack": lambda m: np.stack([m[0], m[1]]),
    "concatenate": lambda m: np.concatenate([m[0], m[1]]), "hstack": lambda m: np.hstack([m, m]),
    "vstack": lambda m: np.vstack([m, m]), "column_stack": lambda m: np.column_stack([m, m]),
    "transpose": np.transpose, "reshape": lambda m: np.reshape(m, (-1, 1)), "ravel": np.ravel,
    "moveaxis": lambda m: np.moveaxis(m, 0, 1), "swapaxes": lambda m: np.swapaxes(m, 0, 1),
    "roll": lambda m: np.roll(m, 1), "flip": np.flip, "squeeze": np.squeeze,
    "expand_dims": lambda m: np.expand_dims(m, 0), "broadcast_to": lambda m: np.broadcast_to(m, (2, *m.shape)),
    "diagonal": np.diagonal, "diag": np.diag, "take": lambda m: np.take(m, 0), "repeat": lambda m: np.repeat(m, 2),
    "tile": lambda m: np.tile(m, 2), "split": lambda m: np.split(m.ravel(), 1)[0],
    "array_split": lambda m: np.array_split(m.ravel(), 2)[0], "atleast_1d": np.atleast_1d,
    "atleast_2d": np.atleast_2d, "copy": np.copy, "append": lambda m: np.append(m, m), "ones_like": np.ones_like,
    "zeros_like": np.zeros_like, "insert": lambda m: np.insert(m, 0, m[0, 0]),
    "broadcast_arrays": lambda m: np.broadcast_arrays(m, m[0])[1], "delete": lambda m: np.delete(m, 0),
    "shape": np.shape, "ndim": np.ndim, "size": np.size, "clip": lambda m: np.clip(m, 0, 1),
    "where": lambda m: np.where(m > 0, m, 1), "mixed": lambda m: np.stack([m[0, 0], m[0, 0] * np.float64(0.5)]),
    "listed": lambda m: np.array([m[0, 0], m[0, 1] / 2]) * m[0, 0], "a copy is set": lambda m: set_in_a_copy(m, 2.75),
    "zeros are set": lambda m: set_in_a_copy(np.zeros_like(m), 2.75),
    # Numbers of Python by themselves are weak; in lists, or as arrays of a function, they are int64 and float64.
    "stack, integer": lambda m: np.stack([m[0, 0], 2]), "stack, float": lambda m: np.stack([m[0, 0], 0.1]),
    "stack, truth": lambda m: np.stack([m[0, 0], True]), "stack, typed": lambda m: np.stack([m[0, 0], np.float64(1.7)]),
    "stack, single": lambda m: np.stack([m[0, 0], np.float32(1.7)]) * 0.1,
    "stack in a type": lambda m: np.stack([m[0, 0], 0.1], dtype=np.float64),
    "stacks": lambda m: np.stack([m[0], (1, 0.5)]) / 3, "concatenated": lambda m: np.concatenate([m[0], [0.1]]) / 3,
    "hstacked": lambda m: np.hstack([m[0, 0], 0.1, m[0]]), "by name": lambda m: np.stack(arrays=[m[0, 0], 2]),
    "array, integer": lambda m: np.array([m[0, 0], 2]) / 3, "array, float": lambda m: np.array([m[0, 0], 0.1]) / 3,
    "array in a type": lambda m: np.array([m[0, 0], 1.7], dtype=np.float32),
    "array of one": lambda m: np.array(m[0, 0]) / 3, "array of an array": lambda m: np.array(m) / 3,
    "asarray": lambda m: np.asarray([[m[0, 0], 1], m[1]]) / 3,
    "largest of an array": lambda m: np.max(np.array([m[0, 0], m[0, 1], 3])),
    "smallest of a stack": lambda m: np.min(np.stack([m[0, 0], 2, np.float64(1.7)])),
    "in its type": lambda m: np.stack([m[0, 0] / 3, 0.1], dtype=(m / 3).dtype),
    "constants": lambda m: np.eye(2).astype(m.dtype) * m,
    "of a number": lambda m: np.array([2, 3], m[0, 0].dtype) * m[0],
    "plus a list": lambda m: np.add(m[0], [1, 2]), "times a list": lambda m: [0.1, 2] * m[0],
    "at a list": lambda m: m[0] @ [1, 0.1],
    "dot with a number": lambda m: np.dot(m[0], 0.1), "outer with numbers": lambda m: np.outer(m[0], (1, 2.5)),
    "einsum of three": lambda m: np.einsum("i,i,i", m[0], m[1], np.array([0.1, 0.2])),
    "where of lists": lambda m: np.where(m[0] > 1, m[0], [1, 0.1]),
    "where, known": lambda m: np.sum(np.where(np.float64(1.7), np.stack([m[0, 0], 0]), [0, 5])),
    "where of numbers": lambda m: np.where(m > 1, m, 0.1),
    "append a number": lambda m: np.append(m[0], 0.1), "insert a number": lambda m: np.insert(m[0], 1, 2.5),
    "diff with a number": lambda m: np.diff(m[0], prepend=0.5), "clip by lists": lambda m: np.clip(m[0], [0, 1], 2),
    "cross with numbers": lambda m: np.cross(m.ravel()[:3], [0.1, 0.2, 1]),
    "numbers beside": lambda m: np.broadcast_arrays(m, 0.1)[1],
}  # fmt: skip


def set_in_a_copy(m: Any, value: float) -> Any:
    work = m.copy()
    work[0, 1] = value
    return work


@pytest.mark.parametrize("name", TYPES)
def test_functions_of_arrays_have_numpys_types_and_values(name: str) -> None:
    from meshloom.kernel.evaluate import evaluate
    from meshloom.kernel.listed import arrays_of_symbols
    from meshloom.kernel.symbols import _GENERIC
    from meshloom.kernel.values import objects

    assert {f.__name__ for f in _GENERIC} <= set(ARRAYS), "a function of arrays without a test"
    i = np.iinfo(np.int32 if name == "bool" else name) if "f" not in name else None
    big = 1e3 if i is None else i.max // 2
    values = np.array([[big, 3], [big, -big]]).astype(name)
    symbols = np.empty((2, 2), object)
    for k, at in enumerate(np.ndindex(2, 2)):
        symbols[at] = symbol(name, k)
    compared = 0
    for label, function in ARRAYS.items():
        try:
            with np.errstate(all="ignore"):
                expected = np.asarray(function(values))
        except TypeError:
            expected = None
        try:
            with arrays_of_symbols():
                result = function(symbols.view(SymbolArray))
        except KernelError as error:
            assert "\n" not in str(error) and (expected is None or name == "bool"), (label, error)
            continue
        assert expected is not None, f"{label} of {name} is not refused"
        flat = objects(result).reshape(-1)
        assert np.shape(result) == expected.shape, label
        with np.errstate(all="ignore"):
            leaf = lambda node: (values.astype("int32") if name == "bool" else values).flat[node.value[0]]  # noqa: E731
            got = [evaluate([v.node], leaf)[0] if isinstance(v, Symbol) else v for v in flat]
        types = {v.node.dtype if isinstance(v, Symbol) else np.asarray(v).dtype for v in flat}
        assert types == {expected.dtype}, (label, types, expected.dtype)
        np.testing.assert_allclose(np.array(got), expected.reshape(-1), rtol=1e-6, err_msg=label)
        compared += 1
    assert compared > 50


# --- integers and numbers that do not fit -----------------------------------------------------------------------------
def test_python_integers_beyond_the_type_compare_and_are_refused_otherwise() -> None:
    i = symbol("int32", 0)
    assert (i < 2**40).node.value is True and (i == 2**70).node.value is False
    for wrong in (lambda: i + 2**40, lambda: np.where(i > 0, i, 2**40), lambda: np.minimum(i, -(2**40))):
        with pytest.raises(KernelError, match=r"test_operations\.py:.*out of bounds for int32"):
            wrong()


@pytest.mark.parametrize("exponent", [-1, np.int32(-3)])
def test_negative_powers_of_integers_are_refused(exponent: int) -> None:
    with pytest.raises(KernelError, match="float base"):
        symbol("int32", 0) ** exponent


@pytest.mark.parametrize("wrong", [lambda i: i ** symbol("int32", 1), lambda i: 2**i])
def test_powers_of_integers_with_exponents_known_at_run_time_are_refused(wrong: Callable[[Symbol], Any]) -> None:
    with pytest.raises(KernelError, match="float base"):
        wrong(symbol("int32", 0))


@pytest.mark.parametrize("back_end", ("numpy", "cpu", "emulated"))
def test_single_precision_meets_typed_numbers_as_in_numpy(back_end: str) -> None:
    """A NumPy number or array of double precision makes the result one, a Python number does not."""
    third, table = np.float64(1.0) / 3, np.array([1.0 / 3, 2.0])

    @ml.kernel
    def k(a: ml.Read, out: ml.Write):
        out[...] = [a * third, (a * table)[0], a * float(third), a * np.float32(third)]

    ml.use(back_end)
    on = ml.Set(1)
    a, out = on.field("a", data=np.float32([0.1])), on.field("out", 4)
    k(on, a, out)
    x = np.float32(0.1)
    assert out.numpy()[0].tolist() == [x * third, x * third, float(x * np.float32(third)), float(x * np.float32(third))]


# --- kinds that do not fit --------------------------------------------------------------------------------------------
def adds(x: ml.Read, n: ml.Sum):
    n += x


def subtracts(x: ml.Read, n: ml.Sum):
    n -= 2.5 * x


def offers(x: ml.Read, n: ml.Min):
    n[...] = x


def offers_a_number(x: ml.Read, n: ml.Max):
    n[...] = 0.5


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("function", (adds, subtracts, offers, offers_a_number))
def test_floats_are_not_combined_into_integers(function: Callable[..., None], back_end: str) -> None:
    """Five times 0.7 is 3.5, and neither 0 nor 3."""
    if back_end != "python":
        ml.use(back_end)
    on, total = ml.Set(5), ml.Global(0)
    x = on.field("x", data=np.full(5, 0.7))
    kernel = ml.kernel(function)
    with pytest.raises(KernelError, match=r"test_operations\.py:\d+: ") as caught:
        (kernel.python if back_end == "python" else kernel)(on, x, total)
    assert "\n" not in str(caught.value) and "int64" in str(caught.value)
    assert total.value == 0


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_wide_integers_are_combined_into_narrow_ones_as_plainly(back_end: str) -> None:
    @ml.kernel
    def k(x: ml.Read, total: ml.Inc, least: ml.Min, most: ml.Max, stored: ml.Write):
        total[0] += x
        least[0] = x
        most[0] = x
        stored[...] = x

    numbers = np.array([2**40 + 5, -3, 2**31])  # plainly, NumPy raises at numbers that do not fit
    if back_end == "python":
        numbers = numbers.astype(np.int32).astype(np.int64)
    else:
        ml.use(back_end)
    on, targets = ml.Set(3), ml.Set(1)
    to = ml.Map(on, targets, [[0], [0], [0]])
    x = on.field("x", data=numbers)
    total, stored = targets.field("total", dtype=np.int32), on.field("stored", dtype=np.int32)
    least, most = (targets.field(n, dtype=np.int32, data=np.zeros(1, np.int32)) for n in ("least", "most"))
    (k.python if back_end == "python" else k)(on, x, total[to], least[to], most[to], stored)
    assert stored.numpy().tolist() == [5, -3, -(2**31)] and total.numpy().tolist() == [2 - 2**31]
    assert least.numpy().tolist() == ([-(2**31)] if back_end == "python" else [-3])
    assert most.numpy().tolist() == ([5] if back_end == "python" else [2**31 - 1])


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("dtype", ("int32", "int64"))
def test_sums_of_integers_wrap(dtype: str, back_end: str) -> None:
    """Also in the sums over elements, whoever makes them."""

    @ml.kernel
    def k(x: ml.Read, total: ml.Inc, everything: ml.Sum):
        total[0] += x
        everything += x

    if back_end != "python":
        ml.use(back_end)
    i = np.iinfo(dtype)
    on, targets = ml.Set(100), ml.Set(1)
    x = on.field("x", data=np.full(100, i.max - 3, dtype))
    total, everything = targets.field("total", dtype=dtype), ml.Global(0, dtype=dtype)
    (k.python if back_end == "python" else k)(on, x, total[ml.Map(on, targets, np.zeros((100, 1), int))], everything)
    expected = (100 * (i.max - 3) - i.min) % 2**i.bits + i.min
    assert total.numpy().tolist() == [expected] and everything.value == expected


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_of_two_zeros_processors_and_gpus_take_the_same(name: str) -> None:
    """NumPy takes either, and so hangs on the processor; what is generated has the same bits wherever it runs."""

    @ml.kernel
    def both(a: ml.Read, b: ml.Read, low: ml.Write, high: ml.Write):
        low[...], high[...] = np.minimum(a, b), np.maximum(a, b)

    pairs = np.array([*product([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf], repeat=2)] * 3, name)
    found = []
    for back_end in ("cpu", "emulated"):
        with ml.using(back_end):
            of = ml.Set(len(pairs), "pairs")
            a, b = (of.field(side, dtype=name, data=values) for side, values in zip("ab", pairs.T, strict=True))
            low, high = (of.field(which, dtype=name) for which in ("low", "high"))
            both(of, a, b, low, high)
            found.append((low.numpy().tobytes(), high.numpy().tobytes()))
    assert found[0] == found[1]
