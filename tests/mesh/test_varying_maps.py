"""Maps of varying arity: kernels reduce over as many elements as there are, as NumPy does, on every back end."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, MeshError, MeshloomError
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
factor = 2.0


@ml.kernel
def reduce_all(q: ml.Read, w: ml.Read, own: ml.Read, out: ml.Write, whole: ml.Write, total: ml.Sum):
    out[0] = np.sum(w * q[:, 0] * own)
    out[1] = np.min(q[:, 1], initial=10.0) + q.shape[0]
    out[2] = np.max(-q, initial=-5.0)
    out[3] = np.sum(np.where(w > 0.5, np.sum(q, axis=1), 0.0)) / np.maximum(q.shape[0], 1) + factor
    out[4] = np.prod(w) + np.any(w > 0.9) + 2 * np.all(w > 0.1)
    whole[...] = np.sum(q, axis=0)
    total += w.sum()


class Lists:
    """Random lists, some of them empty, and what the kernel makes of them by NumPy."""

    def __init__(self, *, most: int = 5, arranged: bool = False, seed: int = 0, n: int = 40):
        dice = np.random.default_rng(seed)
        self.s = ml.Set(n, "s", numbering=dice.permutation(n) if arranged else None)
        self.t = ml.Set(9, "t", numbering=dice.permutation(9) if arranged else None)
        counts = np.where(dice.random(n) < 0.3, 0, dice.integers(0, most + 1, n))
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.entries = dice.integers(0, 9, self.starts[-1])
        self.map = ml.Map.varying(self.s, self.t, self.starts, self.entries, "near")
        self.q, self.w = self.t.field("q", 2, data=dice.random((9, 2))), self.t.field("w", data=dice.random(9))
        self.own = self.s.field("own", data=dice.random(n))
        self.out, self.whole, self.total = self.s.field("out", 5), self.s.field("whole", 2), ml.Global(0.0)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.q[self.map], self.w[self.map], self.own, self.out, self.whole, self.total

    def expected(self, elements: Any) -> tuple[np.ndarray, np.ndarray, float]:
        out, whole, total = np.zeros((len(self.s), 5)), np.zeros((len(self.s), 2)), 0.0
        own = self.own.numpy()
        for e in elements:
            rows = self.entries[self.starts[e] : self.starts[e + 1]]
            q, w = self.q.numpy()[rows], self.w.numpy()[rows]
            out[e] = [np.sum(w * q[:, 0] * own[e]), np.min(q[:, 1], initial=10.0) + len(q), np.max(-q, initial=-5.0),
                      np.sum(np.where(w > 0.5, q.sum(axis=1), 0.0)) / max(len(q), 1) + factor,
                      np.prod(w) + np.any(w > 0.9) + 2 * np.all(w > 0.1)]  # fmt: skip
            whole[e], total = q.sum(axis=0), total + w.sum()
        return out, whole, total

    def check(self, elements: Any) -> None:
        for one, right in zip((self.out.numpy(), self.whole.numpy(), self.total.value), self.expected(elements),
                              strict=True):  # fmt: skip
            np.testing.assert_allclose(one, right, rtol=1e-12)


@pytest.mark.parametrize("arranged", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_as_numpy_with_lists_of_any_length(backend: str, arranged: bool) -> None:
    ml.use(backend)
    lists = Lists(arranged=arranged)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as one about values that cannot be compared
        reduce_all(lists.s, *lists.arguments)
        lists.check(range(40))
        lists.total.value = 0.0
        reduce_all.python(lists.s, *lists.arguments)
        lists.check(range(40))
    for one in (lists.out, lists.whole):
        one.fill(0.0)
    lists.total.value = 0.0
    some = lists.s.subset([3, 8, 17])
    ml.Program(lambda: reduce_all(some, *lists.arguments)).run()
    lists.check([3, 8, 17])


def test_captured_values_and_other_maps_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("numpy")
    lists = Lists()
    reduce_all(lists.s, *lists.arguments)
    monkeypatch.setattr("tests.mesh.test_varying_maps.factor", 7.0)
    lists.total.value = 0.0
    reduce_all(lists.s, *lists.arguments)
    lists.check(range(40))
    none = ml.Map.varying(lists.s, lists.t, np.zeros(41, int), [], "none")
    out = lists.s.field("out")

    @ml.kernel
    def two(a: ml.Read, b: ml.Read, out: ml.Write):
        out[...] = np.sum(a) + 100.0 * np.sum(b)

    two(lists.s, lists.w[none], lists.w[lists.map], out)
    one_way = out.numpy()
    two(lists.s, lists.w[lists.map], lists.w[none], out)
    np.testing.assert_allclose(one_way, 100.0 * out.numpy(), rtol=1e-14)
    assert out.numpy().any()


def _kernel_of(body: Any) -> ml.Kernel:
    @ml.kernel
    def wrong(q: ml.Read, w: ml.Read, out: ml.Write):
        out[...] = body(q, w)

    return wrong


@pytest.mark.parametrize(("body", "why"), [
    (lambda q, w: q[0], r"index it as q\[:, c\]"), (lambda q, w: np.sum(q[..., 1:]), r"index it as q\[:, c\]"),
    (lambda q, w: q[..., 0], r"index it as q\[:, c\]"),
    (lambda q, w: np.sum(q * q[:, None]), "have 0 and 1 axes at an element"),
    (lambda q, w: len(q), "has no loop over them"),
    (lambda q, w: sum(q), "has no loop over them"), (lambda q, w: np.min(q), "say initial="),
    (lambda q, w: np.sum(q + w), "q and w are seen through different maps"),
    (lambda q, w: np.sort(q), "np.sort of q is not supported"),
    (lambda q, w: np.sum(q * np.ones(3)), r"does not go together with an array of shape \(3,\)"),
    (lambda q, w: np.sum(q, axis=1), "axis 1 is none of its 1"), (lambda q, w: np.add.reduce(q), "np.add.reduce"),
    (lambda q, w: np.sum(q, keepdims=True), "with keepdims is not supported"),
])  # fmt: skip
def test_what_a_kernel_cannot_do_is_one_line(body: Any, why: str) -> None:
    ml.use("numpy")
    lists = Lists()
    other = ml.Map.varying(lists.s, lists.t, lists.starts, lists.entries, "other")
    out = lists.s.field("out")
    with one_line_from(KernelError, why):
        _kernel_of(body)(lists.s, lists.w[lists.map], lists.w[other], out)
    assert not out.numpy().any()


def test_only_read() -> None:
    ml.use("numpy")
    lists = Lists()

    @ml.kernel
    def spread(a: ml.Read, b: ml.Inc):
        b[0] += a

    with one_line_from(MeshloomError, r"parameter b: w\[near\] is seen through a map of varying arity, .* this is Inc"):
        spread(lists.s, lists.own, lists.w[lists.map])
    with one_line_from(MeshError, "through must be a Map"):
        ml.Matrix(lists.t, through=lists.map)


@pytest.mark.parametrize(("starts", "entries", "why"), [
    ([0, 1], [0], "starts must be 3 integers, one more than s has"), ([0, 2, 1], [0], "must ascend from 0 to 1"),
    ([1, 1, 1], [0], "must ascend from 0"), ([0, 0, 2], [0], "must ascend"), ([0, 1, 1], [4], "entry 0 is 4, but t"),
    ([0, 1, 1], [-1], "entry 0 is -1"), ([0.0, 1.0, 1.0], [0], "must be integers"),
    ([0, 65, 65], [0] * 65, "element 0 leads to 65 others, and a kernel takes 64 at most; loop over a set of the"),
])  # fmt: skip
def test_wrong_lists_are_one_line(starts: Any, entries: Any, why: str) -> None:
    with one_line_from(MeshError, why):
        ml.Map.varying(ml.Set(2, "s"), ml.Set(4, "t"), starts, entries)
    with one_line_from(MeshError, "empty has no elements"):
        ml.Map.varying(ml.Set(2, "s"), ml.Set(0, "empty"), [0, 0, 0], [])
