"""Which code a result was made from: its commit, and a hash that needs no git.

    python -m bench.stamp                          # of the code here
    python -m bench.stamp write                    # note the commit in bench/.commit, for a copy without .git
    python -m bench.stamp verify FILE... [--commit C] [--last 200]
                                                   # is the code of these results that of a commit, and of which?

The hash is SHA-256 over paths and contents of the source files of ``meshloom/`` and ``bench/``, so that the same code
has the same hash in a checkout, in a copy and in ``git archive``. The commit comes from ``bench/.commit`` where that
has the hash of the code (a copy may have a git of its own, which knows nothing of it), else from git, else from the
variable ``MESHLOOM_COMMIT``; else it is "unknown", and ``verify`` finds it by the hash.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import meshloom as ml

ROOT = Path(__file__).parents[1]
NOTE = Path(__file__).with_name(".commit")
VARIABLE = "MESHLOOM_COMMIT"
FOLDERS = ("meshloom", "bench")
ATTACKERS = ("tests/attacks", "tests/fuzz")  # their results depend on them, too: what git knows of them counts
SOURCES = frozenset({".py", ".cpp", ".hpp", ".h", ".cu", ".cuh", ".toml"})
UNKNOWN = "unknown"
_COMMIT = re.compile(r"([0-9a-f]{7,40})(-dirty)?")


def is_source(path: PurePosixPath) -> bool:
    """Does a path, relative to the root of the project, count?"""
    return (bool(path.parts) and path.parts[0] in FOLDERS and path.parts[:2] != ("bench", "results")
            and "__pycache__" not in path.parts and path.suffix in SOURCES)  # fmt: skip


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 over names and contents, whatever order they come in."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{len(files[name])}\0".encode())
        total.update(files[name])
    return total.hexdigest()


def sources(root: Path = ROOT) -> dict[str, bytes]:
    """The source files below a folder, by their paths in it."""
    found = (path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file())
    named = {path.relative_to(root).as_posix(): path for path in found}
    return {name: path.read_bytes() for name, path in named.items() if is_source(PurePosixPath(name))}


def sources_of_commit(commit: str, root: Path = ROOT) -> dict[str, bytes]:
    """The same of a commit, from git."""
    packed = subprocess.run(["git", "-C", str(root), "archive", "--format=tar", commit, *FOLDERS],
                            capture_output=True, check=True).stdout  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {member.name: content.read() for member in archive if is_source(PurePosixPath(member.name))
                and (content := archive.extractfile(member)) is not None}  # fmt: skip


def stamp(root: Path = ROOT) -> dict[str, Any]:
    """What a result says about its code: ``commit``, ``dirty`` (None: cannot be known), where that is from, the
    version, and the hash."""
    files = sources(root)
    code = digest(files)
    noted = _from_note(root, code)
    if noted and noted[1]:  # of other code: only where nothing else is known
        commit, dirty, source = _from_git(root) or noted
    else:
        commit, dirty, source = noted or _from_git(root) or _from_variable() or (UNKNOWN, None, "nowhere")
    return {"commit": commit, "dirty": dirty, "commit_from": source, "version": ml.__version__, "sha256": code,
            "files": len(files)}  # fmt: skip


Found = tuple[str, bool | None, str]


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _from_git(root: Path) -> Found | None:
    top = _git(root, "rev-parse", "--show-toplevel")
    commit = _git(root, "rev-parse", "HEAD")
    if not top or not commit or Path(top).resolve() != root.resolve():  # a copy inside some other repository
        return None
    changed = (_git(root, "diff", "--name-only", "HEAD", "--", *FOLDERS, *ATTACKERS),
               _git(root, "ls-files", "--others", "--exclude-standard", "--", *FOLDERS, *ATTACKERS))  # fmt: skip
    paths = [path for listed in changed for path in (listed or "").splitlines()]
    dirty = any(is_source(PurePosixPath(path)) or path.startswith(ATTACKERS) for path in paths)
    return commit, dirty, "git"


def _from_note(root: Path, code: str) -> Found | None:
    """What ``write`` left; code that has changed since is dirty."""
    try:
        noted = json.loads((root / NOTE.relative_to(ROOT)).read_text(encoding="utf-8"))
        return str(noted["commit"]), bool(noted["dirty"] or noted["sha256"] != code), "bench/.commit"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _from_variable() -> Found | None:
    given = _COMMIT.fullmatch(os.environ.get(VARIABLE, "").strip())
    return (given[1], bool(given[2]) or None, VARIABLE) if given else None  # clean or not: only the hash can tell


def note(root: Path = ROOT) -> Path:
    """Write down the commit and the hash, for a copy of this tree that has no git."""
    found, path = stamp(root), root / NOTE.relative_to(ROOT)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return path


def commit_with(code: str, commits: Iterable[str], root: Path = ROOT) -> str | None:
    """The first of some commits whose code has a hash."""
    return next((c for c in commits if digest(sources_of_commit(c, root)) == code), None)


def with_commit(result: dict[str, Any], root: Path = ROOT) -> dict[str, Any]:
    """A result that names no clean commit, with the one whose files have its hash added as ``code.found``."""
    code = result.get("code")
    if not code or (code["commit"] != UNKNOWN and not code["dirty"]):
        return result
    latest = (_git(root, "rev-list", "--max-count=200", "HEAD") or "").split()
    found = commit_with(code["sha256"], latest, root)
    return result | {"code": code | {"found": found}} if found else result


def commit_of(code: Mapping[str, Any]) -> tuple[str, bool]:
    """The commit that a result was made from, and was anything changed since?"""
    return (code["found"], False) if code.get("found") else (code["commit"], bool(code["dirty"]))


def verified(result: dict[str, Any], commits: Iterable[str], root: Path = ROOT) -> str:
    """One line: which commit the code of a result is that of, or that none of those tried is."""
    code = result.get("code")
    if not code:
        return "says nothing about its code"
    tried = list(commits)
    claimed = code["commit"]
    if found := commit_with(code["sha256"], tried, root):
        same = "as it says" if found.startswith(claimed) else f"it says {claimed}"
        return f"made from commit {found}, {same}"
    return f"made from none of the {len(tried)} commits tried; it says {claimed}, hash {code['sha256'][:12]}"


def _candidates(options: argparse.Namespace, claimed: str) -> list[str]:
    if options.commit:
        return [_git(ROOT, "rev-parse", options.commit) or options.commit]
    known = (_git(ROOT, "rev-list", f"--max-count={options.last}", "HEAD") or "").split()
    first = [full] if (full := _git(ROOT, "rev-parse", "--verify", "--quiet", f"{claimed}^{{commit}}")) else []
    return [*first, *(c for c in known if c not in first)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stamp", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("show", "write", "verify"), default="show")
    parser.add_argument("files", nargs="*", type=Path, help="result files to verify")
    parser.add_argument("--commit", help="the commit to compare with (default: the one it names, then the latest)")
    parser.add_argument("--last", type=int, default=200, help="how many commits to try (default %(default)s)")
    options = parser.parse_args(arguments)
    if options.what == "show":
        print(json.dumps(stamp(), indent=1))
    elif options.what == "write":
        print(f"written to {note()}")
    text_lines = []
    for file in options.files:
        result = json.loads(file.read_text(encoding="utf-8"))
        text_lines.append(verified(result, _candidates(options, result.get("code", {}).get("commit", UNKNOWN))))
        print(f"{file.name}: {text_lines[-1]}")
    return int(any(not line.startswith("made from commit") for line in text_lines))


if __name__ == "__main__":
    sys.exit(main())
