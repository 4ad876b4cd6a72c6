"""No two modules import each other, not even by a detour: whoever reads one can begin with what it imports.

Imports inside functions count, since nothing but a circle would need most of them, and so do those for type checking:
what one side needs of the other is a base class, or a protocol, that both can import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from tests.docs.test_rooms import files, parsed

RUN, TYPES = "run", "types"
#: Circles that remain, of types alone -> what makes them.
KNOWN = {
    tuple(f"meshloom.operation.{one}" for one in ("body", "execution", "operation", "policy")): (
        "an operation hands itself to its body and its policy, and these, wherever they are derived, take it as it is"
    ),
}
Edges = dict[str, set[str]]


def imports(
    tree: ast.AST, module: str, package: bool, modules: Iterable[str], when: str = RUN
) -> Iterator[tuple[str, str]]:
    """(when, module) for each module among ``modules`` that a file imports, wherever in it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((when, alias.name) for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in modules or base in modules:
                    yield when, inner if inner in modules else base
        else:
            typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            yield from imports(node, module, package, modules, TYPES if typing else when)


def graph(sources: Mapping[str, tuple[ast.Module, bool]], *kinds: str) -> Edges:
    """Module -> modules that it imports. ``sources``: module -> its tree, and whether it is a package."""
    made: Edges = {}
    for name, (tree, package) in sources.items():
        found = imports(tree, name, package, sources)
        made[name] = {other for when, other in found if when in kinds and other != name}
    return made


def circles(edges: Edges) -> list[list[str]]:
    """Modules that reach each other, each group once: the strongly connected components."""
    names = sorted(edges)
    place = {name: k for k, name in enumerate(names)}
    rows, columns = zip(*[(place[name], place[other]) for name in names for other in edges[name]], strict=True)
    links = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(names),) * 2)
    _, label = connected_components(links, connection="strong")
    groups = [[name for name, one in zip(names, label, strict=True) if one == k] for k in set(label)]
    return sorted(group for group in groups if len(group) > 1)


def sources() -> dict[str, tuple[ast.Module, bool]]:
    return {name: (parsed(path), path.name == "__init__.py") for path, name in files()}


def test_no_module_imports_one_that_imports_it() -> None:
    assert circles(graph(sources(), RUN)) == []


def test_nor_for_its_types() -> None:
    assert circles(graph(sources(), RUN, TYPES)) == [list(one) for one in KNOWN]


def test_circles_are_found() -> None:
    text = {
        "p": "from p import a",
        "p.a": "from p.b import x\nfrom p.d import x",
        "p.b": "def f():\n    from . import c",
        "p.c": "if TYPE_CHECKING:\n    import p.d\nimport p.a as one",
        "p.d": "import os\nif TYPE_CHECKING:\n    from p.a import x",
    }
    planted = {name: (ast.parse(one), name == "p") for name, one in text.items()}
    assert circles(graph(planted, RUN)) == [["p.a", "p.b", "p.c"]]
    assert circles(graph(planted, RUN, TYPES)) == [["p.a", "p.b", "p.c", "p.d"]]
    planted["p.b"] = (ast.parse("import os"), False)
    assert circles(graph(planted, RUN)) == []
