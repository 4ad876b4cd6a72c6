"""Nothing is taken from a cache that others can have written, and nothing waits for one that is no file."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.errors import CompilerError
from meshloom.native import cache, compiler, eviction, ownership
from meshloom.native.elf import is_whole
from meshloom.native.ownership import distrust

ROOT = Path(__file__).parents[2]
SOURCE = 'extern "C" int answer() { return 42; }\n'
needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files to others")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, the compiler known."""
    known = cache.cache_dir("compiler")
    compiler.host_compiler()
    folder = tmp_path / "cache"
    shutil.copytree(known, folder / "compiler")
    folder.chmod(0o700)
    monkeypatch.setenv("MESHLOOM_CACHE", str(folder))
    monkeypatch.setattr(cache, "_told", set())
    monkeypatch.setattr(cache, "_private", [])
    compiler._find.cache_clear()
    yield folder
    compiler._find.cache_clear()


def said(found: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message) for one in found]


def test_a_group_of_one_user_is_nobody_else(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems that give everybody a group and let groups write (umask 002)."""
    cache.store_arrays("plans", "k", {"a": np.ones(3)})
    for path in (own, own / "plans", own / "plans" / "k.npz"):
        path.chmod(0o775)
    monkeypatch.setattr(ownership, "_is_private", lambda group: group == os.getegid())
    assert (cache.load_arrays("plans", "k") or {})["a"].sum() == 3
    monkeypatch.setattr(ownership, "_is_private", lambda group: False)
    with pytest.warns(UserWarning, match="others may write"):
        assert cache.load_arrays("plans", "k") is None


@pytest.mark.parametrize("change, private", [
    ({}, True), ({"members": ["ada"]}, True), ({"members": ["bob"]}, False), ({"group": "staff"}, False),
    ({"bob_first": 1000}, False), ({"first": 100}, False),
])  # fmt: skip
def test_whose_group_it_is(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], private: bool) -> None:
    """Members of a group are those that it lists, and those whose first group it is."""
    pwd, grp = pytest.importorskip("pwd"), pytest.importorskip("grp")
    facts: dict[str, Any] = {"group": "ada", "members": [], "first": 1000, "bob_first": 1001} | change
    ada = pwd.struct_passwd(("ada", "x", os.geteuid(), facts["first"], "", "/", "/bin/sh"))
    bob = pwd.struct_passwd(("bob", "x", 77777, facts["bob_first"], "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: ada)
    monkeypatch.setattr(pwd, "getpwall", lambda: [ada, bob])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((facts["group"], "x", gid, facts["members"])))
    ownership._is_private.cache_clear()
    try:
        assert ownership._is_private(1000) is private
    finally:
        ownership._is_private.cache_clear()


def test_a_source_that_goes_while_it_is_compiled_costs_a_line(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``meshloom cache --clear`` beside a run."""
    run = compiler._run
    cleared: list[bool] = []

    def cleared_before(command: list[str]) -> subprocess.CompletedProcess[str]:
        if not cleared and any(word.endswith(".cpp") for word in command):
            cleared.append(True)
            eviction.clear(own)
        return run(command)

    monkeypatch.setattr(compiler, "_run", cleared_before)
    with pytest.warns(UserWarning, match="No such file"):
        assert compiler.load('extern "C" int nine() { return 9; }\n', "nine").nine() == 9
    assert cleared


# ---- folders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o722, 0o1777])
@pytest.mark.parametrize("place", ["", "plans"])
def test_a_cache_that_others_may_write_is_not_used(
    own: Path, mode: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "_is_private", lambda group: False)
    cache.store_arrays("plans", "k", {"a": np.ones(3)})
    (own / place).chmod(mode)
    with pytest.warns(UserWarning, match="others may write to .*chmod go-w") as found:
        assert cache.load_arrays("plans", "k") is None
        cache.store_arrays("plans", "k", {"a": np.zeros(3)})
    assert len(said(found)) == 1  # once, however often
    private = cache.cache_dir("plans")
    assert own not in private.parents and private.stat().st_mode & 0o777 == 0o700
    assert (cache.load_arrays("plans", "k") or {})["a"].sum() == 0
    (own / place).chmod(0o700)
    assert (cache.load_arrays("plans", "k") or {})["a"].sum() == 3


def test_nor_where_others_may_rename_what_is_above_it(tmp_path: Path) -> None:
    folder = tmp_path / "open" / "mine"
    folder.mkdir(parents=True)
    assert distrust(folder) is None and distrust(folder / "to" / "come") is None
    folder.parent.chmod(0o777)
    assert "others may write to" in (distrust(folder) or "") and distrust(folder / "to" / "come")
    folder.parent.chmod(0o1777)  # sticky, as /tmp
    assert distrust(folder) is None


def test_links_are_followed_and_judged(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    for folder in (bad, good):
        (folder / "cache").mkdir(parents=True)
    bad.chmod(0o777)
    links = tmp_path / "links"
    links.mkdir()
    for name, target in (("to_good", good), ("to_bad", bad), ("relative", Path("../good")), ("round", links / "round")):
        (links / name).symlink_to(target)
    assert distrust(links / "to_good" / "cache") is None and distrust(links / "relative" / "cache") is None
    assert "others may write" in (distrust(links / "to_bad" / "cache") or "")
    assert "without end" in (distrust(links / "round" / "cache") or "")
    (bad / "through").symlink_to(good)  # others may lead it elsewhere
    assert distrust(bad / "through" / "cache") is not None
    (tmp_path / "file").touch()
    assert "not a folder" in (distrust(tmp_path / "file" / "cache") or "")


@needs_root
def test_what_belongs_to_another_user_is_not_believed(own: Path) -> None:
    """As root with the home of somebody else, which is usual in containers."""
    cache.store_arrays("plans", "k", {"a": np.ones(3)})
    os.chown(own / "plans" / "k.npz", 12345, 12345)
    assert cache.load_arrays("plans", "k") is None
    cache.store_arrays("plans", "k", {"a": np.ones(3)})
    os.chown(own, 12345, 12345)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert cache.load_arrays("plans", "k") is None


def test_folders_and_files_are_made_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "a" / "b"))
        cache.store_arrays("plans", "k", {"a": np.ones(3)})
        assert cache.load_arrays("plans", "k") is not None
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/plans")]
    assert modes == [0o700] * 3 and (tmp_path / "a/b/plans/k.npz").stat().st_mode & 0o777 == 0o600


NOBODY = """
import os, pwd, warnings
from meshloom.native import cache
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(54321)
    os.setuid(54321)
else:
    pwd.getpwuid = {}.__getitem__  # nobody is known
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    cache.store_arrays("plans", "k", {})
    print(len(found), found[0].message, cache.cache_dir("plans"))
print(os.listdir("."))
"""


def test_without_a_home_nothing_is_taken_from_the_current_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    here = tmp_path / "here"
    here.mkdir()
    here.chmod(0o777)
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "MESHLOOM_CACHE")}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": ""}
    done = subprocess.run([sys.executable, "-c", NOBODY], cwd=here, env=environment, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, left = done.stdout.splitlines()
    assert first.startswith("1 there is no home folder to keep compiled code in; set MESHLOOM_CACHE to a folder")
    assert "/meshloom-cache-" in first
    assert left == "[]"


def test_no_home_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MESHLOOM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as Python does for an unknown user
    assert cache.wanted_root() is None and "set MESHLOOM_CACHE" in (cache.refusal() or "")


# ---- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "folder", "full folder", "dangling", "device", "round"])
def test_what_is_no_file_is_none_and_is_replaced(own: Path, kind: str) -> None:
    cache.cache_dir("plans")
    file = own / "plans" / "k.npz"
    {"pipe": lambda: os.mkfifo(file), "folder": file.mkdir, "full folder": lambda: (file / "x").mkdir(parents=True),
     "dangling": lambda: file.symlink_to("nothing"), "device": lambda: file.symlink_to("/dev/zero"),
     "round": lambda: file.symlink_to(file)}[kind]()  # fmt: skip
    begin = time.monotonic()
    assert cache.load_arrays("plans", "k") is None
    if kind == "full folder":
        with pytest.warns(UserWarning, match="cannot be written"):
            cache.store_arrays("plans", "k", {"a": np.ones(3)})
        assert file.is_dir()
    else:
        cache.store_arrays("plans", "k", {"a": np.ones(3)})
        assert cache.load_arrays("plans", "k") is not None
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("suffix", [".so", ".cpp", ".lock"])
@pytest.mark.parametrize("kind", ["pipe", "full folder"])
def test_libraries_are_built_whatever_stands_in_the_way(own: Path, suffix: str, kind: str) -> None:
    file = compiler.build(SOURCE, "victim").with_suffix(suffix)
    file.unlink()
    file.with_suffix(".so").unlink(missing_ok=True)
    os.mkfifo(file) if kind == "pipe" else (file / "x").mkdir(parents=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        library = compiler.build(SOURCE, "victim")
    assert ctypes.CDLL(str(library)).answer() == 42
    private = kind == "full folder" and suffix != ".lock"
    assert (library.parent != own / "code") == private
    assert [one for one in said(found) if "Is a directory" in one or "Directory not empty" in one] == said(found)
    assert len(said(found)) == private


def test_a_library_under_another_name_is_not_taken_for_it(own: Path) -> None:
    first, second = compiler.build(SOURCE, "first"), compiler.build(SOURCE.replace("42", "41"), "second")
    shutil.copy(second, first)
    assert compiler.load(SOURCE, "first").answer() == 42


def test_whole_libraries_are_told_from_cut_ones(own: Path) -> None:
    body = compiler.build(SOURCE, "whole").read_bytes()[: -compiler._CHECKSUM_BYTES]
    assert is_whole(body)
    assert not any(is_whole(body[:length]) for length in range(0, len(body), 7))


def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """The real compiler, and ``after`` it something with $out, unless it is only tried."""
    real = compiler.host_compiler().path
    script = tmp_path / "fake-c++"
    find = 'for word in "$@"; do [ "$last" = -o ] && out="$word"; last="$word"; done'
    script.write_text(f'#!/bin/sh\n{real} "$@" || exit $?\n{find}\ncase "$out" in *probe*|"") exit 0;; esac\n{after}\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    compiler._find.cache_clear()


@pytest.mark.parametrize(("after", "words"), [
    ('head -c 5000 "$out" > "$out.2"; mv "$out.2" "$out"', "reported success, but left 5,000 bytes that are no whole"),
    ('rm "$out"', "reported success, but left no library"),
])  # fmt: skip
def test_a_compiler_that_leaves_half_a_library(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               after: str, words: str) -> None:  # fmt: skip
    fake_compiler(tmp_path, monkeypatch, after)
    with pytest.raises(CompilerError, match=words):
        compiler.load(SOURCE, "half")


@pytest.mark.slow
def test_a_compiler_that_has_no_room(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = f'case "$out" in {own}/*) rm "$out"; echo "fatal: No space left on device" >&2; exit 1;; esac'
    fake_compiler(tmp_path, monkeypatch, after)
    with pytest.warns(UserWarning, match="takes no compiled code: No space left on device"):
        assert compiler.load(SOURCE, "roomless").answer() == 42


def test_a_cache_removed_meanwhile_is_made_again(own: Path) -> None:
    assert compiler.load(SOURCE, "first").answer() == 42
    shutil.rmtree(own)
    assert compiler.load(SOURCE, "second").answer() == 42
    cache.store_arrays("plans", "k", {"a": np.ones(3)})
    assert cache.load_arrays("plans", "k") is not None and (own / "code").is_dir()


def test_code_is_not_put_where_it_cannot_run(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "runs_code", lambda folder: own not in (folder, *folder.parents))
    with pytest.warns(UserWarning, match=r"takes no compiled code: .*noexec"):
        assert compiler.load(SOURCE, "elsewhere").answer() == 42


def test_the_memory_of_a_probe_cannot_bring_flags(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MESHLOOM_CXXFLAGS", raising=False)  # which come behind what a probe finds
    found, tried = compiler.host_compiler(), []
    monkeypatch.setattr(compiler, "_probe", lambda command: tried.append(command) or found)
    compiler._find.cache_clear()
    assert compiler.host_compiler() == found and not tried
    (memo,) = (own / "compiler").glob("*.json")
    for text in ('{"version": "x", "flags": ["-fplugin=evil.so"]}', '{"version": 1, "flags": "ab"}', "[]", "[" * 9999):
        memo.write_text(text)
        compiler._find.cache_clear()
        assert compiler.host_compiler() == found
    assert len(tried) == 4


MOUNTED = """
from meshloom.native import cache, compiler
import numpy as np
print(compiler.load('extern "C" int answer() { return 42; }', "mounted").answer())
cache.store_arrays("plans", "0" * 64, {"x": np.zeros(10**6)})
"""


@pytest.mark.slow
@pytest.mark.parametrize(("options", "before", "words"), [
    ("noexec", "true", ["forbids to run code from it (noexec)"]),
    ("size=100k", "head -c 90000 /dev/zero > $0/x", ["No space left on device", "cannot be written"]),
    ("size=300k", "head -c 190000 /dev/zero > $0/x", ["No space left on device", "cannot be written"]),
    ("ro", "true", ["takes no compiled code: Read-only", "cannot be written (Read-only"]),
])  # fmt: skip
def test_real_file_systems(tmp_path: Path, options: str, before: str, words: list[str]) -> None:
    """Mounted in a name space of its own, where the system permits that."""
    script = f'mount -t tmpfs -o {options} tmpfs $0 || exit 77; {before}; MESHLOOM_CACHE=$0/c exec "$1" -c "$2"'
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script, tmp_path, sys.executable, MOUNTED], cwd=ROOT,
                          capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("file systems cannot be mounted here")
    assert done.stdout == "42\n", done.stderr
    assert "Traceback" not in done.stderr and all(one in done.stderr for one in words), done.stderr


# ---- time -------------------------------------------------------------------------------------------------------


def test_a_compiler_that_hangs_is_ended_with_all_it_started(own: Path, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    fake_compiler(tmp_path, monkeypatch, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    compiler.host_compiler()
    monkeypatch.setenv("MESHLOOM_COMPILER_SECONDS", "2")
    begin = time.monotonic()
    with pytest.raises(CompilerError, match=r"did not end within 2 seconds and was stopped; set MESHLOOM_COMPILER_SEC"):
        compiler.build(SOURCE, "hanging")
    assert time.monotonic() - begin < 30
    for _ in range(100):
        state = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("what the compiler had started goes on")
    monkeypatch.setenv("MESHLOOM_COMPILER_SECONDS", "soon")
    with pytest.raises(CompilerError, match="MESHLOOM_COMPILER_SECONDS is 'soon'"):
        compiler.build(SOURCE, "hanging")


# ---- size -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "found"), [("500M", 500 * 10**6), ("2g", 2 * 10**9), ("1.5 GB", 15 * 10**8),
                                               ("4096", 4096), ("0", 0), ("", eviction.LIMIT)])  # fmt: skip
def test_the_limit_is_a_size(monkeypatch: pytest.MonkeyPatch, wanted: str, found: int) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE_LIMIT", wanted)
    assert eviction.limit() == found


@pytest.mark.parametrize("wanted", ["lots", "-5M", "1e9", "5X", "\u0665M", "9" * 400])
def test_another_limit_is_told_and_ignored(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE_LIMIT", wanted)
    with pytest.warns(UserWarning, match="not a size such as 500M"):
        assert eviction.limit() == eviction.LIMIT


def filled(root: Path, count: int) -> list[Path]:
    """Plans of 1000 bytes, the first one used last; the youngest an hour ago."""
    (root / "plans").mkdir(parents=True, exist_ok=True)
    files = [root / "plans" / f"{k:064x}.npz" for k in range(count)]
    for k, file in enumerate(files):
        file.write_bytes(bytes(1000))
        os.utime(file, (time.time() - 3600 * (k + 1),) * 2)
    return files


def test_the_least_recently_used_go_first_and_foreign_files_stay(own: Path) -> None:
    shutil.rmtree(own / "compiler")
    files = filled(own, 10)
    foreign = [own / "notes.txt", own / "plans" / "mine.npz", own / "other" / files[0].name]
    foreign[2].parent.mkdir()
    for file in foreign:
        file.write_bytes(bytes(100000))
        os.utime(file, (0, 0))
    (own / "plans" / ("f" * 64 + ".npz")).symlink_to(foreign[0])
    litter = own / "plans" / f".x.npz.123.{'0' * 32}.tmp"
    litter.write_bytes(b"x")
    assert eviction.shrink(own, 10000) == 0 and litter.exists()  # somebody may be writing it
    os.utime(litter, (0, 0))
    assert eviction.shrink(own, 4500) == 6
    assert [file.exists() for file in files] == [True] * 4 + [False] * 6
    assert all(file.exists() for file in foreign) and not litter.exists()
    os.utime(files[0])  # used just now: its user may be about to load it
    assert eviction.shrink(own, 0) == 3 and files[0].exists()
    assert len(eviction.clear(own)) == 1 and not files[0].exists() and all(file.exists() for file in foreign)


def test_use_counts_and_a_process_looks_once(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("a" * 64, "b" * 64, "c" * 64):
        cache.store_arrays("plans", key, {"x": np.ones(100)})
        os.utime(own / "plans" / f"{key}.npz", (time.time() - 5000,) * 2)
    assert cache.load_arrays("plans", "a" * 64) is not None
    monkeypatch.setattr(eviction, "_looked", False)
    monkeypatch.setenv("MESHLOOM_CACHE_LIMIT", "2k")
    cache.store_arrays("plans", "d" * 64, {"x": np.ones(100)})
    assert {file.name[0] for file in (own / "plans").iterdir()} == {"a", "d"}
    looked: list[int] = []
    monkeypatch.setattr(eviction, "shrink", lambda *_: looked.append(1))
    cache.store_arrays("plans", "e" * 64, {"x": np.ones(100)})
    assert not looked


def test_a_library_in_use_survives_its_file(own: Path) -> None:
    found = compiler.load(SOURCE, "used")
    assert len(eviction.clear(own)) > 0
    assert found.answer() == 42 and compiler.load(SOURCE, "used").answer() == 42
