"""Variants of a strategy: asked for, shown, refused where there are none, and what their code reads."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.translation_unit import make_unit
from meshloom.errors import ScheduleError
from meshloom.schedule.choice.schedule import parse_schedule
from meshloom.schedule.plan.plan import arrays


@ml.kernel
def spread(x: ml.Read, w: ml.Read, res: ml.Inc):
    f = w * (x[1] - x[0])
    res[0] += f
    res[1] -= f


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    ml.use("cpu")


def make(mesh: ml.Mesh, wish: ml.Schedule | None = None) -> tuple[ml.Loop, ml.Field]:
    x = mesh.coordinates
    w = mesh.faces.field("w", data=mesh.permutation.apply("faces", np.linspace(1.0, 2.0, len(mesh.faces))))
    res = mesh.nodes.field("res", 2)
    return spread.loop(mesh.faces, x[mesh.face_nodes], w, res[mesh.face_nodes], schedule=wish), res


def text_of(loop: ml.Loop) -> str:
    """What is done with an element, without the parameters around it."""
    phases = [phase for one in make_unit(loop.spec, loop.plan).passes for phase in one.phases]
    return "\n".join(str(statement) for phase in phases for statement in phase.body)


def test_strategies_name_their_variants() -> None:
    assert ml.variants("color") == ("plain", "indices") and ml.variants("owner") == ml.variants("auto") == ("plain",)
    with pytest.raises(ScheduleError, match="unknown strategy 'colour'"):
        ml.variants("colour")


@pytest.mark.parametrize(("name", "allowed"), [("owner", "plain"), ("auto", "plain"), ("color", "plain, indices")])
def test_a_variant_that_does_not_exist_is_refused(name: str, allowed: str) -> None:
    loop, _ = make(ml.generate.box((6, 5)), ml.Schedule(name, variant="data"))
    with pytest.raises(ScheduleError, match=f"strategy '{name}' has no variant 'data'; allowed: {allowed}$"):
        loop()


def test_a_variant_is_part_of_a_schedule() -> None:
    wish = parse_schedule({"strategy": "color", "variant": "indices"})
    assert str(wish) == "color variant=indices" and str(ml.Schedule("color")) == "color"
    loop, _ = make(ml.generate.box((6, 5)), wish)
    assert "color block=512 variant=indices" in loop.explain()


def test_a_loop_without_races_has_no_use_for_a_variant() -> None:
    @ml.kernel
    def double(v: ml.ReadWrite):
        v[...] = 2.0 * v

    points = ml.Set(10, "points")
    loop = double.loop(points, points.field("v"), schedule=ml.Schedule("color", variant="indices"))
    loop()
    assert (loop.schedule.strategy, loop.schedule.variant) == ("direct", "plain")


def test_maps_in_the_order_of_colors_replace_the_maps() -> None:
    mesh = ml.generate.box((6, 5))
    plain, _ = make(mesh, ml.Schedule("color"))
    indices, _ = make(mesh, ml.Schedule("color", variant="indices"))
    assert "m0[e * 2 + 1]" in text_of(plain) and "by_color0" not in text_of(plain)
    assert "by_color0[1 * n + i]" in text_of(indices) and "m0[" not in text_of(indices)
    assert "visit[i]" in text_of(indices), "data of the elements stay where they are"


@pytest.mark.parametrize("variant", ml.variants("color"))
def test_faces_numbered_by_color_of_what_they_share_are_not_looked_up(variant: str) -> None:
    """The ordering colors faces by their cells: for a loop that increments cells, nothing is left to look up."""
    mesh = ml.generate.box((9, 8), cells="triangle")

    @ml.kernel
    def gain(w: ml.Read, res: ml.Inc):
        res[0] += w
        res[1] += 2.0 * w

    results = []
    for one in (mesh, mesh.reordered("color")):
        w = one.faces.field("w", data=one.permutation.apply("faces", np.arange(len(one.faces))))
        res = one.cells.field("res")
        loop = gain.loop(one.faces, w, res[one.face_cells], schedule=ml.Schedule("color", variant=variant))
        loop()
        results.append((loop, res.numpy()))
    (before, expected), (after, found) = results
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert before.plan.visit is not None and after.plan.visit is None and "visit" not in text_of(after)
    assert after.plan.n_colors == before.plan.n_colors


def test_each_variant_has_its_own_plan_on_disk(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from meshloom.schedule.plan import plan_cache

    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(plan_cache, "smallest_stored", lambda: 1)
    mesh = ml.generate.box((6, 5))
    for _ in range(2):
        plans = [make(mesh, ml.Schedule("color", variant=v))[0].plan for v in ml.variants("color")]
        assert arrays(plans[1]).keys() - arrays(plans[0]).keys() == {"by_color0"}
    assert len(list((tmp_path / "plans").iterdir())) == 2
