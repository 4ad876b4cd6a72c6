"""Loops over boxes of grids, fused: what is needed at the point itself stays in registers, and boxes stay boxes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import meshloom as ml
from tests.fitted import changed as changed_numbers
from tests.test_fusion import copy, groups_of, mix, relax, scaled

HERE = ["cpu", "emulated"]


@ml.kernel
def blur(a: ml.Read, b: ml.Write) -> None:
    b[...] = 0.25 * (a[0, 1] + a[0, -1] + a[1, 0] + a[-1, 0]) - 0.5 * a[0, 0]


@ml.kernel
def drag(a: ml.Read, b: ml.ReadWrite) -> None:
    b[...] = 0.5 * b + 0.25 * a[1, 0] + 0.125 * a[0, 0]


@ml.kernel
def shrink(a: ml.Read, b: ml.Write) -> None:
    b[...] = 0.1 * a


@ml.kernel
def move(a: ml.Read, b: ml.ReadWrite, total: ml.Sum) -> None:
    b[...] = b + a
    total += a * a


class Diffusion:
    """A Laplacian, a factor, a step; ``around``: the grid is periodic, else it has ghosts, which nobody sets."""

    def __init__(self, backend: str, around: bool, inside: int = 0, temporary: bool = False):
        ml.use(backend)
        grid = ml.Grid((9, 8), periodic=around, ghosts=0 if around else 1, name="plane")
        on = grid.interior(inside) if inside else grid
        self.u, self.total = grid.field("u", data=np.random.default_rng(4).random((9, 8))), ml.Global(0.0, "total")
        self.change, part = grid.field("change", temporary=temporary), grid.field("part", temporary=True)
        at = grid.offsets((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))

        @ml.program
        def step() -> None:
            blur(on, self.u[at], part)
            shrink(on, part, self.change)
            self.total.value = 0.0
            move(on, self.change, self.u, self.total)

        self.step = step

    def results(self) -> list[np.ndarray]:
        history = np.concatenate([self.step.run(n, record=(self.total,)) for n in (2, 1)])
        return [history, self.u.numpy(), *([] if self.change.temporary else [self.change.numpy()])]


@pytest.mark.parametrize("where", HERE)
@pytest.mark.parametrize("temporary", [True, False])
@pytest.mark.parametrize(
    ("around", "inside", "expected"),
    [(True, 0, ["blur+shrink+move"]), (False, 0, ["blur+shrink", "move"]), (False, 2, ["blur+shrink", "move"])],
)
def test_a_stencil_takes_what_follows_at_the_point(
    where: str, temporary: bool, around: bool, inside: int, expected: list[str]
) -> None:
    """Over all of a periodic grid even what the stencil has read is written, to a second buffer; not of a part."""
    expected_results = Diffusion("numpy", around, inside, temporary).results()
    fused = Diffusion(where, around, inside, temporary)
    for found, wanted in zip(fused.results(), expected_results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    if not temporary:  # else it may be computed by the replay before
        assert groups_of(fused.step) == expected
    written = {p.name for one in fused.step.fused_steps for p in one.spec.params if p.mode.writes}
    assert "part" not in written, "nobody asks for it"


def test_bytes_of_a_box_are_those_of_its_points() -> None:
    first, second = Diffusion("cpu", around=False, inside=2).step.fused_steps
    points, around = 5 * 4, 5 * 4 + 2 * 5 + 2 * 4
    assert first.elements == points and first.compulsory == 8 * (around + points)  # u; change
    assert second.compulsory == 8 * points * 3  # change; u, read and written


@pytest.mark.parametrize("where", HERE)
def test_points_outside_keep_their_values(where: str) -> None:
    """Two loops over a part; the rest of what they write stays, also where a fill over all has gone before."""
    ml.use(where)
    grid = ml.Grid((6, 5), name="plane")
    u, v = grid.field("u"), grid.field("v", data=np.arange(30.0).reshape(6, 5))

    @ml.program
    def step() -> None:
        u.fill(2.0)
        shrink(grid.interior(1), v, u)
        copy(grid.interior(1), u, v)

    step.run(2)
    expected = np.arange(30.0).reshape(6, 5)
    expected[1:-1, 1:-1] *= 0.01
    np.testing.assert_allclose(v.numpy(), expected, rtol=1e-15)
    assert u.numpy()[0].tolist() == [2.0] * 5 and groups_of(step) == ["shrink+copy"]


# Random programs of what points and their neighbours can do, over all of a grid or parts of it.
KERNELS: dict[str, Callable] = {"blur": blur, "drag": drag, "mix": mix, "copy": copy, "relax": relax, "scaled": scaled}
Steps = list[tuple[str, int, tuple[int, ...]]]


def recorded(steps: Steps, around: bool, within: bool) -> tuple[Callable[[], None], dict[str, ml.Field | ml.Global]]:
    """A function to make a program of, and everything it changes that lasts; ``within``: the last field does not."""
    grid, rng = ml.Grid((6, 5), periodic=around, ghosts=0 if around else 1, name="plane"), np.random.default_rng(3)
    f = [grid.field(n, data=rng.random((6, 5)), temporary=within and n == "s") for n in "pqrs"]
    at, total = grid.offsets((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)), ml.Global(0.0, "total")
    boxes = (grid, grid, grid.box((1, 1), (5, 4)), grid.box((2, 0), (4, 5)))

    def body() -> None:
        for name, box, (a, b, c) in steps:
            on = boxes[box]
            match name:
                case "blur" | "drag":
                    KERNELS[name](on, f[a][at], f[b])
                case "mix":
                    mix(on, f[a], f[b], f[c])
                case "copy":
                    copy(on, f[a], f[b])
                case "relax":
                    total_of(on, f[a], f[b], total)
                case "scaled":
                    scaled(on, f[a], total)
                case "fill":
                    f[a].fill(0.5)
                case "reset":
                    total.value = 0.0

    return body, {one.name: one for one in f if not one.temporary} | {"total": total}


@ml.kernel
def total_of(a: ml.Read, b: ml.ReadWrite, total: ml.Sum) -> None:
    b[...] = 0.5 * (a + b)
    total += b


@st.composite
def programs(draw: st.DrawFn) -> Steps:
    """Operations on distinct fields."""
    names, count = (*KERNELS, "fill", "reset"), draw(st.integers(2, 8))
    fields = [tuple(draw(st.permutations(range(4))))[:3] for _ in range(count)]
    return [(draw(st.sampled_from(names)), draw(st.integers(0, 3)), some) for some in fields]


def compare_any_program(steps: Steps, around: bool, within: bool) -> None:
    if all(name in ("fill", "reset") for name, _, _ in steps):
        steps = [*steps, ("copy", 0, (0, 1, 2))]
    if within:  # such a field must be written before it is read
        steps = [("fill", 0, (3, 0, 1)), *steps]
    results = []
    with pytest.MonkeyPatch.context() as patch:
        changed_numbers(patch, fusion={"worth": np.inf})  # fused wherever it can be
        for backend in ("numpy", *HERE):
            ml.use(backend)
            body, changed = recorded(steps, around, within)
            program = ml.program(body)
            program.run(2)
            program.run(1)
            results.append({name: one.numpy() for name, one in changed.items()})
    for name, expected in results[0].items():
        for found in results[1:]:
            atol = 1e-12 * np.abs(expected).max()
            np.testing.assert_allclose(found[name], expected, rtol=1e-11, atol=atol, err_msg=name)


@given(steps=programs(), around=st.booleans(), within=st.booleans())
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_of_boxes_gives_the_same_fused(steps: Steps, around: bool, within: bool) -> None:
    compare_any_program(steps, around, within)


@pytest.mark.slow
@given(steps=programs(), around=st.booleans(), within=st.booleans())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_hundred_programs_of_boxes_give_the_same_fused(steps: Steps, around: bool, within: bool) -> None:
    compare_any_program(steps, around, within)
