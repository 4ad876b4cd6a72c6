"""The loop nest as data: what nodes print, which names they use, other values for names, sizes."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cpu_dialect import CppPrinter
from meshloom.backend.translation_unit import block_names, make_unit, parameters
from meshloom.schedule.lines.nest_parts import any_of, chained
from meshloom.schedule.nest import nodes
from meshloom.schedule.nest.contraction import contracted
from meshloom.schedule.nest.nodes import (
    Accumulate,
    AddressOf,
    Atomic,
    Barrier,
    Binary,
    Block,
    Cast,
    Comment,
    Deposit,
    Do,
    Expr,
    For,
    Grouped,
    If,
    Leave,
    Let,
    LoadRow,
    Name,
    Number,
    PairOf,
    Piece,
    PointerTo,
    Prefetch,
    Room,
    RowOf,
    Select,
    SharedArray,
    Shuffle,
    Skip,
    Statement,
    Store,
    StoreRow,
    Switch,
    Thread,
    Threads,
    Unary,
    UnsignedThread,
    all_of,
    call,
    greatest,
    least,
    let,
    no,
    offset_by,
    summed,
    variable,
)
from meshloom.schedule.nest.printer import Printer
from meshloom.schedule.nest.walk import everything, names, number_of, substituted
from tests.docs.test_rooms import PACKAGE, files, parsed
from tests.findings import none_fails
from tests.written import texts

PRINTER = Printer()
DOUBLE, INT32 = np.dtype("float64"), np.dtype("int32")
a, b, c, t, q = map(Name, "abctq")

VALUES: list[tuple[Expr, str]] = [
    (a, "a"),
    (Number(-3), "-3"),
    (Number(-3.0, DOUBLE), "(-3.0)"),
    (Number(2, np.dtype("int64")), "INT64_C(2)"),
    (q[t * 4 + 1], "q[t * 4 + 1]"),
    (Piece(a, Number(2)), "a.v[2]"),
    (Piece(q[t], Number(2)), "q[t].v[2]"),
    (LoadRow("double", 4, AddressOf(q[t * 4])), "ml_load<double, 4>(&q[t * 4])"),
    (LoadRow("int32_t", 2, q + t * 2), "ml_load<int32_t, 2>(q + t * 2)"),
    (-a, "-a"),
    (-Number(-1), "-(-1)"),
    (-(a + b), "-(a + b)"),
    (no(a & b), "!(a & b)"),
    (Unary("~", a), "~a"),
    (a + b + c, "a + b + c"),
    (a + (b + c), "a + (b + c)"),
    (a - (b - c), "a - (b - c)"),
    ((a + b) * c, "(a + b) * c"),
    (a * (b * c), "a * (b * c)"),
    (2 - a, "2 - a"),
    (2 * a % b, "2 * a % b"),
    (1 + a / b, "1 + a / b"),
    ((1 << a) - 1, "(1 << a) - 1"),
    (a >> (b & 31) & 1, "a >> (b & 31) & 1"),
    (all_of([a < b, b <= c, no(t)]), "a < b && b <= c && !t"),
    (Binary("&&", a, Binary("||", b, c)), "a && (b || c)"),
    (all_of([a > b, a >= 0]), "a > b && a >= 0"),
    (a.equals(b), "a == b"),
    (a.differs(0), "a != 0"),
    (Select(a < b, a + 1, b), "a < b ? a + 1 : b"),
    (Select(a, b, c) * t, "(a ? b : c) * t"),
    (Select(Select(a, b, c), a, Select(a, b, c)), "(a ? b : c) ? a : a ? b : c"),
    (Cast("ml_index", a / 4), "(ml_index)(a / 4)"),
    (Cast("double", q[t]), "(double)q[t]"),
    (call("ml_whole", a, of_types=("int32_t",)), "ml_whole<int32_t>(a)"),
    (least(a + 1, greatest(b, 0)), "ml_min(a + 1, ml_max(b, 0))"),
    (Shuffle(a, Name("own_lane") + 1), "ml_from(a, own_lane + 1)"),
    (t - Thread(), "t - (ml_index)threadIdx.x"),
    (Cast("int", UnsignedThread() % 16), "(int)(threadIdx.x % 16)"),
    (Cast(PairOf("float"), Number(0)), "(ml_pair<float>)0"),
    (Cast(PointerTo("int32_t"), AddressOf(q[0])), "(int32_t*)&q[0]"),
    (no(any_of([a, all_of([b, c])])), "!(a || b && c)"),
    (a + (b - c), "a + (b - c)"),
    (chained(a, b - c + t * q), "a + b - c + t * q"),
    (chained(a, b * c), "a + b * c"),
    (Threads() * 2, "(ml_index)blockDim.x * 2"),
    (Grouped(a * b) + Grouped(Grouped(c)), "(a * b) + ((c))"),
    (summed([a, 1, b * c]), "a + 1 + b * c"),
    (offset_by(a, 0), "a"),
    (offset_by(a, 3), "a + 3"),
]

TURN = Store(q[t], a)
STATEMENTS: list[tuple[Statement, str]] = [
    (let("x", a + 1), "const ml_index x = a + 1;"),
    (Let("double", (("x", a), ("y", b))), "const double x = a, y = b;"),
    (variable("x", 0, "float"), "float x = 0;"),
    (let("r", LoadRow("double", 2, q), RowOf("double", 2)), "const ml_row<double, 2> r = ml_load<double, 2>(q);"),
    (Room("double", "all", Number(5)), "double all[5];"),
    (Store(q[t], a), "q[t] = a;"),
    (Store(a, b + c, "*"), "a *= b + c;"),
    (StoreRow("double", q[t * 2], (a, Cast("double", b))), "ml_store<double, 2>(&q[t * 2], {{a, (double)b}});"),
    (Accumulate(q[t], "add", -a, DOUBLE), "q[t] = q[t] + -a;"),
    (Accumulate(a, "add", b, INT32), "a = ml_wrapped_add<int32_t>(a, b);"),
    (Accumulate(a, "maximum", b, DOUBLE), "a = ml_max(a, b);"),
    (Accumulate(a, "", b, DOUBLE), "a = b;"),
    (Deposit(a, Cast("double", b)), "ml_deposit(a, (double)b);"),
    (Atomic(q[t], "minimum", a), "ml_atomic_minimum(&q[t], a);"),
    (For("x", a, b, (TURN,), bound="end"), "for (ml_index x = a, end = b; x < end; ++x) {\nq[t] = a;\n}"),
    (For("x", a, b, (TURN,), "int", unroll=0), "#pragma unroll\nfor (int x = a; x < b; ++x) {\nq[t] = a;\n}"),
    (
        For("x", a, b, (For("y", b, c, (), step=Number(2)),), unroll=1, bare=True),
        "#pragma unroll 1\nfor (ml_index x = a; x < b; ++x)\nfor (ml_index y = b; y < c; y += 2) {\n}",
    ),
    (For("x", a - 1, Number(0), (), down=True), "for (ml_index x = a - 1; x >= 0; --x) {\n}"),
    (For("x", a, b, (), also=t < c), "for (ml_index x = a; x < b && t < c; ++x) {\n}"),
    (If(a < b, (TURN,)), "if (a < b) {\nq[t] = a;\n}"),
    (If(a, (TURN,), (Do(call("f")),)), "if (a) {\nq[t] = a;\n} else {\nf();\n}"),
    (If(a, (TURN,), (If(b, (TURN,)),)), "if (a) {\nq[t] = a;\n} else if (b) {\nq[t] = a;\n}"),
    (If(a, (TURN,), (Do(call("f")),), bare=True), "if (a) q[t] = a; else f();"),
    (If(t < b, (TURN,), given=let("t", a)), "if (const ml_index t = a; t < b) {\nq[t] = a;\n}"),
    (Switch(a, ((TURN,), ())), "switch (a) {\ncase 0: {\nq[t] = a;\n} break;\ncase 1: {\n} break;\n}"),
    (Switch(a, ((), ()), total=True), "switch (a) {\ndefault: {\n} break;\ncase 1: {\n} break;\n}"),
    (Leave(), "break;"),
    (variable("x", q, PointerTo(PairOf("double"), fixed=True)), "const ml_pair<double>* x = q;"),
    (Skip(), "continue;"),
    (Block((TURN,)), "{\nq[t] = a;\n}"),
    (Do(call("f", a)), "f(a);"),
    (Comment("x = 1 \\"), "// x = 1 /"),
]


def test_values_print_with_the_parentheses_that_c_needs() -> None:
    def check(node: Expr, text: str) -> None:
        assert PRINTER.expression(node) == str(node) == text

    none_fails(VALUES, check, shown=lambda row: row[1])


def test_statements_print() -> None:
    def check(node: Statement, text: str) -> None:
        assert "\n".join(PRINTER.statement(node)) == str(node) == text

    none_fails(STATEMENTS, check, shown=lambda row: row[1])


def test_what_only_threads_that_run_together_have() -> None:
    shared = (SharedArray("double", "room", Number(32)), Barrier(), Prefetch(q[t], a + 1, "double"))
    prefetch = "ml_prefetch(&q[t], (int)((a + 1) * sizeof(double)));"
    assert PRINTER.text_lines(shared) == ["__shared__ double room[32];", "__syncthreads();", prefetch]
    alone = CppPrinter()
    assert alone.text_lines(shared) == ["double room[32];", prefetch], "a thread of a CPU waits for nobody"
    assert alone.expression(Thread() * Threads()) == "(ml_index)0 * (ml_index)1"
    assert alone.expression(UnsignedThread() % 16) == "0u % 16"
    with pytest.raises(ValueError, match="no lanes"):
        alone.expression(Shuffle(a, b))


def test_independent_turns_are_for_vectors_of_a_cpu() -> None:
    loop = For("x", a, b, (TURN,), "int64_t", independent=True)
    head = "for (int64_t x = a; x < b; ++x) {"
    assert CppPrinter(["reduction(+ : r0)"]).statement(loop)[:2] == ["#pragma omp simd reduction(+ : r0)", head]
    assert CppPrinter().statement(loop)[:2] == ["#pragma omp simd", head] and PRINTER.statement(loop)[0] == head


def test_summands_of_independent_turns_wait_for_each_other() -> None:
    """What is deposited in every turn; where some turns deposit nothing they go one after the other."""
    loop = For("x", a, b, (TURN, Deposit(c, t)), "int64_t", independent=True)
    assert CppPrinter().statement(loop) == [
        "{", "double waiting0[512];",
        "for (int64_t chunk_first = a, chunk_end = b; chunk_first < chunk_end; chunk_first += 512) {",
        "const int64_t chunk_last = ml_min(chunk_first + 512, chunk_end);",
        "#pragma omp simd", "for (int64_t x = chunk_first; x < chunk_last; ++x) {",
        "q[t] = a;", "waiting0[x - chunk_first] = t;", "}",
        "ml_deposit_all(c, waiting0, chunk_last - chunk_first);", "}", "}",
    ]  # fmt: skip
    some = For("x", a, b, (If(a, (Deposit(c, t),)),), "int64_t", independent=True)
    assert CppPrinter().statement(some)[0] == "for (int64_t x = a; x < b; ++x) {"
    assert PRINTER.statement(loop)[0] == "for (int64_t x = a; x < b; ++x) {", "threads of a GPU have a turn each"


def test_what_one_thread_does_is_the_same_text_for_every_target() -> None:
    none_fails(VALUES + STATEMENTS, is_the_same_text, shown=lambda row: row[1])


def is_the_same_text(node: nodes.NestNode, text: str) -> None:
    if not any(isinstance(one, Shuffle | Thread | UnsignedThread | Threads) for one in everything([node])):
        printer = CppPrinter()
        assert text == (printer.expression(node) if isinstance(node, Expr) else "\n".join(printer.statement(node)))


def test_every_kind_of_node_is_printed_here() -> None:
    classes = [one for one in vars(nodes).values() if isinstance(one, type)]
    kinds = {one for one in classes if issubclass(one, nodes.NestNode) and one.kind}
    shared = {SharedArray, Barrier, Prefetch}
    seen = {type(one) for one in everything([node for node, _ in VALUES] + [node for node, _ in STATEMENTS])}
    assert kinds == seen | shared


def test_names_are_those_that_are_used_and_not_those_that_are_declared() -> None:
    body = For("x", Name("low")[b], Name("n"), (let("e", Name("visit")[Name("x")]), Comment("block of words")))
    assert names([body]) == {"low", "b", "n", "visit", "x"}
    assert names([Switch(a, ((Store(b, c),), (Atomic(q[t], "add", a),)))]) == {"a", "b", "c", "q", "t"}


def test_substitution_changes_names_and_shares_the_rest() -> None:
    body = If(t < a, (Store(Piece(q[t], Number(0)), a), let("x", t + 1)))
    assert (
        str(substituted(body, {"t": b + 1})) == "if (b + 1 < a) {\nq[b + 1].v[0] = a;\nconst ml_index x = b + 1 + 1;\n}"
    )
    assert substituted(body, {"z": b}) is body
    assert substituted(body, {"t": b}).body[0] == Store(Piece(q[b], Number(0)), a)


def test_the_arithmetic_of_nests_is_contracted_and_places_are_not() -> None:
    """Of two products the second is taken; a name of its own, as operations of kernels have, ends a formula."""
    at = q[a * 3 + t]
    body = (
        Store(at, a * b, "-"), Store(at, a * b - c * t, "+"), Store(at, c - a * b), Store(at, b * (c + a * t)),
        Let("double", (("v0", a * b), ("v1", b + c))), Let(PairOf("float"), (("v2", -(a * b + c)),), fixed=False),
        let("x", a * b + c), For("i", a * b + c, Name("n"), (Store(t, Select(a * b + c < t, b + a * t, c), "*"),)),
    )  # fmt: skip
    assert "\n".join(map(str, contracted(body))) == """\
q[a * 3 + t] = ml_fma(-a, b, q[a * 3 + t]);
q[a * 3 + t] += ml_fma(-c, t, a * b);
q[a * 3 + t] = ml_fma(-a, b, c);
q[a * 3 + t] = b * ml_fma(a, t, c);
const double v0 = a * b, v1 = b + c;
ml_pair<float> v2 = -ml_fma(a, b, c);
const ml_index x = a * b + c;
for (ml_index i = a * b + c; i < n; ++i) {
t *= a * b + c < t ? ml_fma(a, t, b) : c;
}"""


def test_sizes_have_a_value() -> None:
    assert number_of(a * 3 + (Number(1) << b) - 1, {"a": 5, "b": 2}) == 18
    with pytest.raises(KeyError):
        number_of(a, {})


def test_values_are_compared_by_content_and_have_no_truth() -> None:
    assert a + 1 == Name("a") + 1 and a + 1 != a + 2 and hash(a + 1) == hash(Name("a") + 1)
    with pytest.raises(TypeError, match="known when the loop runs"):
        bool(a < b)
    with pytest.raises(TypeError):
        list(a)


def test_functions_do_not_receive_what_only_a_comment_mentions() -> None:
    @ml.kernel
    def scaled(v: ml.Read, g: ml.Read, out: ml.Write):
        n = 2.0 * v + g[1]
        block = n * n
        out[...] = block

    cells = ml.Set(4, "cells")
    loop = scaled.loop(cells, cells.field("v"), ml.Global(np.ones(12), "g"), cells.field("out"))
    unit = make_unit(loop.spec, loop.plan)
    (one,) = unit.passes
    assert "// n = 2.0 * v + g[1]" in str(Block(one.phases[0].body))
    assert [x.name for x in parameters(unit, block_names(one))] == ["f0_v", "f2_out", "g1_1"]


# ----- nobody else writes text --------------------------------------------------------------------------------------
#: Looks like C: a call, an index, an operator that assigns or compares, a statement's end, nothing but arithmetic.
LOOKS_LIKE_C = re.compile(
    r"\w[(\[]|->|::|[=!]=|&&|\|\||[-+*/|&]=|<<|>>|\+\+|^\s*#|[{}]|[\w)\]];\s*$|^\[|\[$|^\w+( [-+*/%<>=] \w+)+$"
    r"|\b(const|int|double|float|void|auto|return|unsigned)\b [\w(]"
)
#: Is C, wherever it stands: statements with their ends, declarations, heads of loops, updates of arrays.
_TYPE = r"(?:u?int(?:8|16|32|64)?_t|int|double|float|void|auto|unsigned|size_t|bool|char|long|ml_index)"
IS_C = re.compile(
    r"\b(?:for|while|if|switch)\s*\([^)]*\)\s*(?:[{;]|\w[\w\[\].]*\s*[-+*/|&]?=[^=]|return\b|break\b|$)|\bfor\s*\([^)]*;"
    rf"|(?:^|[;{{(,]\s*|\b(?:const|static|extern)\s+){_TYPE}\s*[*&]*\s+[*&]*\w+\s*(?:=[^=]|;|\[|\()"
    r"|[\w)\]]\s*[-+*/|&]?=\s*[^=\n\"']*[\w)\]];\s*(?:$|\})|\breturn\b[^.\n]*;\s*(?:$|\})|\w\s*\([^()]*\);\s*(?:$|\})"
    r"|^\s*#\s*(?:define|include|pragma|if|endif)\b|\w->\w|\+\+\w|\b(?!C\+)\w+\+\+(?!\w)|\w\[[^\]]*\]\s*[-+*/|&]=",
    re.MULTILINE,
)
#: An operator by itself is data: a node has it.
OPERATOR = re.compile(r"[^\w\s;{}\[\]()#]{1,2}")
#: Words of CUDA, OpenMP and C++, and functions of the preludes, which the printer calls.
OF_A_LANGUAGE = re.compile(
    r"\batomic[A-Z]\w*|\b__[a-z_]+__\s*[\w(]|\b__(syncthreads|syncwarp|shfl|ballot|ldg|threadfence|activemask)\w*"
    r"|\b(thread|block|grid)(Idx|Dim)\b|\bomp_\w+|\bstd::|\bsizeof\b|\bextern \"C\"|#pragma|#include|\bml_\w+[(<]"
)
#: Who writes what a compiler reads; everybody else builds nests, or has to do with neither.
WRITERS = {
    "schedule/nest/printer.py": "the printer",
    "backend/": "targets print nests, with a frame around them",
    "target/cuda.py": "how CUDA says what all languages of GPUs say", "target/hip.py": "the same of HIP",
    "kernel/expr.py": "what C++ calls the functions of a formula",
    "native/": "it compiles C++ of its own, and tries compilers",
}  # fmt: skip
#: Text for a person: no nest is built there.
FOR_A_PERSON = "schedule/choice/"


def c_of(name: str, tree: ast.Module) -> list[str]:
    """What a module of the package writes in the language of a compiler; what is raised is for a person, and what
    ``einsum`` takes for NumPy."""
    if name.startswith(tuple(WRITERS)):
        return []
    told = {part for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    told |= {node.args[0] for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args
             and isinstance(node.func, ast.Attribute) and node.func.attr == "einsum"}  # fmt: skip
    strict = name.startswith("schedule/") and not name.startswith(FOR_A_PERSON)
    code = [(node, text) for node, text in texts(tree)
            if OF_A_LANGUAGE.search(text) or (LOOKS_LIKE_C if strict else IS_C).search(text)]  # fmt: skip
    return [text for node, text in code
            if node not in told and not OPERATOR.fullmatch(text)]  # fmt: skip


def test_only_the_printer_writes_c() -> None:
    trees = {path.relative_to(PACKAGE).as_posix(): parsed(path) for path, _ in files()}
    found = {name: c_of(name, tree) for name, tree in trees.items()}
    assert not {name: lines for name, lines in found.items() if lines}
    wrote = [name for name, tree in trees.items() if any(OF_A_LANGUAGE.search(text) for _, text in texts(tree))]
    assert all(any(name.startswith(one) for name in wrote) for one in WRITERS)
    choosing = [ast.unparse(tree) for name, tree in trees.items() if name.startswith(FOR_A_PERSON)]
    assert choosing and not [text for text in choosing if "schedule.nest.nodes" in text]


@pytest.mark.parametrize("name", ["schedule/strategies/owner.py", "schedule/lines/on_gpu.py", "schedule/plan/plan.py"])
@pytest.mark.parametrize(
    "text",
    ['Name("atomicAdd(&r[i], v)")', 'f"atomicAdd(&{place}, {value})"', '"atomic" + "Add(" + place + ")"',
     'call("atomicAdd", place)', '"__syncthreads()"', '"r[i] += v"', '"for (int i = 0; i < n; ++i)"',
     '"{} = {};".format(a, b)', '"%s[%s]" % (a, b)', '"return x;"', '"a->b"', '" + ".join([a, "b"])', '"n * arity"',
     'f"{a}[{b}]"', 'f"{name}{index}({f(\'x[1]\')})"', '"double x"', 'Name("threadIdx.x")', '"#pragma omp parallel"',
     '"".join(("x", "[", "i", "]"))', '"std::fma"'],
)  # fmt: skip
def test_c_in_a_strategy_is_found(name: str, text: str) -> None:
    assert c_of(name, ast.parse(f"def made(a, b):\n    return {text}\n"))


@pytest.mark.parametrize("name", ["operation/policy.py", "linalg/krylov.py", "solvers/airfoil.py", "case/base.py"])
@pytest.mark.parametrize(
    "text",
    ['"atomicAdd(&x, 1.0)"', 'f"__global__ void {name}()"', '"#pragma " + word', '"ml_load<4>(x)"', '"r[i] += v"',
     '"for (int i = 0; i < n; ++i)"', 'f"{a} = {b};"', '"return x;"', '"double x = 3.0;"', 'f"const {kind} x; f(x);"',
     '"void f(int n)"', '"while (n) n = n - 1;"', '"if (x) { y = 1; }"', '"#define N 3"', '"a->b = 1"', '"n++"'],
)  # fmt: skip
def test_so_is_that_of_anybody_else(name: str, text: str) -> None:
    assert c_of(name, ast.parse(f"x = {text}"))


@pytest.mark.parametrize(
    "text", ['"owner"', 'f"c{k}_{slot}"', '"+"', '"<<"', '"a mark for each, 0 for none"', '"""x[i] = 3; in words."""']
)
def test_words_are_no_c(text: str) -> None:
    assert not c_of("schedule/strategies/owner.py", ast.parse(text))
    assert not c_of("schedule/plan/plan.py", ast.parse("def f(x):\n    raise ValueError(f'no entry x[{x}]')"))
