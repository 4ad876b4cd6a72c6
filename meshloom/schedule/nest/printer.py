"""A nest as text: what C++, CUDA and HIP spell alike. A target's printer is a subclass with what differs.

Every statement becomes one or more lines, without indentation, which ``backend/translation_unit.py`` sets for a source.
Parentheses stand where C needs them for the tree that a value is.
"""

from __future__ import annotations

from collections.abc import Iterable

from meshloom.kernel.emit import literal
from meshloom.schedule.nest import nodes
from meshloom.schedule.nest.nodes import Body, Expr, Statement, text_of
from meshloom.schedule.nest.reduce import combined

#: How tightly operators bind, as in C.
_BINDS = {
    "*": 13, "/": 13, "%": 13, "+": 12, "-": 12, "<<": 11, ">>": 11, "<": 10, "<=": 10, ">": 10, ">=": 10,
    "==": 9, "!=": 9, "&": 8, "^": 7, "|": 6, "&&": 5, "||": 4,
}  # fmt: skip
_SELECT, _PREFIX, _ATOM = 3, 14, 16


class Printer:
    """The text of nodes. A method for each kind of node, named by its ``kind``."""

    def text_lines(self, body: Iterable[Statement]) -> list[str]:
        """Some statements after each other."""
        return [line for one in body for line in self.statement(one)]

    def statement(self, node: Statement) -> list[str]:
        found: list[str] = getattr(self, node.kind)(node)
        return found

    def expression(self, node: Expr) -> str:
        text: str = getattr(self, node.kind)(node)
        return text

    def type_name(self, ctype: nodes.Type) -> str:
        match ctype:
            case nodes.RowOf(of, width):
                return f"ml_row<{of}, {width}>"
            case nodes.PairOf(of):
                return f"ml_pair<{of}>"
            case nodes.PointerTo(of, fixed):
                return f"{'const ' if fixed else ''}{self.type_name(of)}*"
            case str():
                return ctype

    # ----- values -------------------------------------------------------------------------------------------------
    def _bound(self, node: Expr, least: int) -> str:
        """The text of a part, in parentheses where it does not bind as tightly as it has to."""
        text = self.expression(node)
        return text if _binding(node) >= least else f"({text})"

    def name(self, node: nodes.Name) -> str:
        return node.name

    def number(self, node: nodes.Number) -> str:
        return str(node.value) if node.dtype is None else literal(node.value, node.dtype)

    def item(self, node: nodes.Item) -> str:
        return f"{self._bound(node.array, _ATOM)}[{self.expression(node.place)}]"

    def piece(self, node: nodes.Piece) -> str:
        return f"{self._bound(node.row, _ATOM)}.v[{self.expression(node.place)}]"

    def load_row(self, node: nodes.LoadRow) -> str:
        return f"ml_load<{node.ctype}, {node.width}>({self.expression(node.address)})"

    def unary(self, node: nodes.Unary) -> str:
        text = self._bound(node.of, _PREFIX)
        return f"{node.operator}({text})" if text[0] == node.operator else f"{node.operator}{text}"

    def binary(self, node: nodes.Binary) -> str:
        binds = _BINDS[node.operator]
        return f"{self._bound(node.left, binds)} {node.operator} {self._bound(node.right, binds + 1)}"

    def select(self, node: nodes.Select) -> str:
        condition, no = self._bound(node.condition, _SELECT + 1), self._bound(node.no, _SELECT)
        return f"{condition} ? {self.expression(node.yes)} : {no}"

    def cast(self, node: nodes.Cast) -> str:
        return f"({self.type_name(node.ctype)}){self._bound(node.of, _PREFIX)}"

    def address(self, node: nodes.AddressOf) -> str:
        return f"&{self._bound(node.place, _PREFIX)}"

    def call(self, node: nodes.Call) -> str:
        chosen = f"<{', '.join(map(str, node.of_types))}>" if node.of_types else ""
        return f"{node.function}{chosen}({', '.join(map(self.expression, node.arguments))})"

    def shuffle(self, node: nodes.Shuffle) -> str:
        return f"ml_from({self.expression(node.of)}, {self.expression(node.lane)})"

    def thread(self, node: nodes.Thread) -> str:
        return "(ml_index)threadIdx.x"

    def threads(self, node: nodes.Threads) -> str:
        return "(ml_index)blockDim.x"

    def grouped(self, node: nodes.Grouped) -> str:
        return f"({self.expression(node.of)})"

    # ----- statements ---------------------------------------------------------------------------------------------
    def declared(self, node: nodes.Let) -> str:
        """The declaration of names, without its end."""
        pairs = ", ".join(f"{name} = {self.expression(one)}" for name, one in node.named)
        return f"{'const ' if node.fixed else ''}{self.type_name(node.ctype)} {pairs}"

    def let(self, node: nodes.Let) -> list[str]:
        return [f"{self.declared(node)};"]

    def room(self, node: nodes.Room) -> list[str]:
        return [f"{self.type_name(node.ctype)} {node.name}[{self.expression(node.size)}];"]

    def shared_array(self, node: nodes.SharedArray) -> list[str]:
        return [f"__shared__ {self.type_name(node.ctype)} {node.name}[{self.expression(node.size)}];"]

    def store(self, node: nodes.Store) -> list[str]:
        return [f"{self.expression(node.place)} {node.operator}= {self.expression(node.value)};"]

    def store_row(self, node: nodes.StoreRow) -> list[str]:
        values = ", ".join(map(self.expression, node.values))
        place = self.address(nodes.AddressOf(node.place))
        return [f"ml_store<{node.ctype}, {len(node.values)}>({place}, {{{{{values}}}}});"]

    def accumulate(self, node: nodes.Accumulate) -> list[str]:
        return self.store(nodes.Store(node.place, combined(node.combine, node.place, node.value, node.dtype)))

    def deposit(self, node: nodes.Deposit) -> list[str]:
        return [f"ml_deposit({self.expression(node.bins)}, {self.expression(node.value)});"]

    def atomic(self, node: nodes.Atomic) -> list[str]:
        place = self.address(nodes.AddressOf(node.place))
        return [f"ml_atomic_{node.combine}({place}, {self.expression(node.value)});"]

    def for_(self, node: nodes.For) -> list[str]:
        x, last = node.variable, self.expression(node.last)
        begin = f"{node.ctype} {x} = {self.expression(node.first)}"
        if node.bound:
            begin, last = f"{begin}, {node.bound} = {last}", node.bound
        going = f"{x} {'>=' if node.down else '<'} {last}"
        if node.also is not None:
            going = f"{going} && {self._bound(node.also, _BINDS['&&'] + 1)}"
        sign = "-" if node.down else "+"
        step = f"{sign}{sign}{x}" if node.step is None else f"{x} {sign}= {self.expression(node.step)}"
        return [*self.advice(node), *self._braced(f"for ({begin}; {going}; {step})", node.body, node.bare)]

    def advice(self, node: nodes.For) -> list[str]:
        """Lines before a loop that tell the compiler what to do with it."""
        if node.unroll is None:
            return []
        return [f"#pragma unroll {node.unroll}" if node.unroll else "#pragma unroll"]

    def if_(self, node: nodes.If) -> list[str]:
        given = "" if node.given is None else f"{self.declared(node.given)}; "
        text_lines = self._braced(f"if ({given}{self.expression(node.condition)})", node.body, node.bare)
        if not node.otherwise:
            return text_lines
        if node.bare:
            return [" ".join([*text_lines, "else", *self.text_lines(node.otherwise)])]
        if len(node.otherwise) == 1 and isinstance(node.otherwise[0], nodes.If):
            first, *rest = self.statement(node.otherwise[0])
            return [*text_lines[:-1], f"}} else {first}", *rest]
        return [*text_lines[:-1], "} else {", *self.text_lines(node.otherwise), "}"]

    def switch(self, node: nodes.Switch) -> list[str]:
        text_lines = [f"switch ({self.expression(node.of)}) {{"]
        for number, body in enumerate(node.bodies):
            case = f"case {number}" if number or not node.total else "default"
            text_lines += [f"{case}: {{", *self.text_lines(body), "} break;"]
        return [*text_lines, "}"]

    def block(self, node: nodes.Block) -> list[str]:
        return ["{", *self.text_lines(node.body), "}"]

    def barrier(self, node: nodes.Barrier) -> list[str]:
        return ["__syncthreads();"]

    def prefetch(self, node: nodes.Prefetch) -> list[str]:
        size = f"(int)(({self.expression(node.count)}) * sizeof({self.type_name(node.ctype)}))"
        return [f"ml_prefetch({self.address(nodes.AddressOf(node.place))}, {size});"]

    def do(self, node: nodes.Do) -> list[str]:
        return [f"{self.expression(node.call)};"]

    def comment(self, node: nodes.Comment) -> list[str]:
        """Nothing may end the comment or go on behind it: no line breaks, no backslash, no trigraph for one."""
        words = node.words.replace("\\", "/")
        if not words.isprintable():
            words = "".join(c if c.isprintable() else " " for c in words)
        while "??" in words:
            words = words.replace("??", "? ?")
        return [f"// {words}"]

    def unsigned_thread(self, node: nodes.UnsignedThread) -> str:
        return "threadIdx.x"

    def leave(self, node: nodes.Leave) -> list[str]:
        return ["break;"]

    def skip(self, node: nodes.Skip) -> list[str]:
        return ["continue;"]

    def _braced(self, head: str, body: Body, bare: bool) -> list[str]:
        text_lines = self.text_lines(body)
        if not bare:
            return [f"{head} {{", *text_lines, "}"]
        return [f"{head} {text_lines[0]}"] if len(text_lines) == 1 else [head, *text_lines]


def _binding(node: Expr) -> int:
    """How tightly the outermost operator of a value binds."""
    if isinstance(node, nodes.Binary):
        return _BINDS[node.operator]
    if isinstance(node, nodes.Select):
        return _SELECT
    prefixed = isinstance(node, nodes.Unary | nodes.Cast | nodes.AddressOf | nodes.Thread | nodes.Threads)
    return _PREFIX if prefixed else _ATOM


PLAIN = Printer()


@text_of.register
def _(node: Expr) -> str:
    return PLAIN.expression(node)


@text_of.register
def _(node: Statement) -> str:
    return "\n".join(PLAIN.statement(node))
