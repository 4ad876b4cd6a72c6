"""Cached arrays come back exactly, or not at all."""

import threading

import numpy as np
import pytest

from meshloom.native.cache import cache_dir, cache_root, load_arrays, store_arrays
from meshloom.process.atomic_write import replacing

ARRAYS = {
    "file": np.arange(1000),  # a name that numpy's own writer reserves
    "colors": np.array([[1, 2], [3, 4]], np.int32),
    "empty": np.zeros((0, 3)),
    "scalar": np.array(7.5),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def assert_same(found, expected):
    assert found is not None and found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype and found[name].shape == array.shape


def test_arrays_come_back():
    assert load_arrays("plans", "abc") is None
    store_arrays("plans", "abc", ARRAYS)
    assert_same(load_arrays("plans", "abc"), ARRAYS)
    assert load_arrays("other", "abc") is None
    store_arrays("plans", "abc", {"new": np.ones(2)})
    assert_same(load_arrays("plans", "abc"), {"new": np.ones(2)})


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.5, 0.9, 0.999])
def test_truncated_file_is_absent_and_can_be_stored_again(own_cache, keep):
    store_arrays("plans", "k", ARRAYS)
    path = own_cache / "plans" / "k.npz"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    assert load_arrays("plans", "k") is None
    store_arrays("plans", "k", ARRAYS)
    assert_same(load_arrays("plans", "k"), ARRAYS)


def test_changed_byte_is_noticed(own_cache):
    store_arrays("plans", "k", ARRAYS)
    path = own_cache / "plans" / "k.npz"
    content = bytearray(path.read_bytes())
    content[2000] ^= 1  # within the numbers of the first array
    path.write_bytes(bytes(content))
    assert load_arrays("plans", "k") is None


def test_objects_are_refused_and_never_read(own_cache):
    with pytest.raises(TypeError, match="Python objects"):
        store_arrays("plans", "k", {"bad": np.array([{}], object)})
    cache_dir("plans")
    np.savez(own_cache / "plans" / "k.npz", bad=np.array([{}], object))
    assert load_arrays("plans", "k") is None


def test_keys_are_file_names():
    with pytest.raises(ValueError, match="cannot be a file name"):
        load_arrays("plans", "../escape")


def test_unwritable_cache_is_not_used_and_a_word_says_so(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="file is not a folder; correct that or set MESHLOOM_CACHE"):
        store_arrays("plans", "k", ARRAYS)
    assert (tmp_path / "file").read_text() == "in the way" and len(list(tmp_path.iterdir())) == 1


def test_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "thing"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_readers_see_whole_files_while_writers_write():
    versions = [{"a": np.full(5000, v), "b": np.full(3, v)} for v in range(4)]
    store_arrays("plans", "k", versions[0])

    def write(version):
        for _ in range(20):
            store_arrays("plans", "k", version)

    writers = [threading.Thread(target=write, args=[version]) for version in versions]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        found = load_arrays("plans", "k")
        assert found is not None and np.unique(np.concatenate([found["a"], found["b"]])).size == 1
        seen += 1
    for writer in writers:
        writer.join()
    assert seen > 0


def test_place_of_the_cache(tmp_path, monkeypatch):
    assert cache_root() == tmp_path / "cache"
    monkeypatch.delenv("MESHLOOM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "meshloom"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "meshloom"
