"""Who could have put something into a folder: what others can write is neither run nor believed.

A path is walked from the root on, links followed by hand. Every folder on the way belongs to this user or to the
system, and others may not rename what lies in it: it is not writable for them, or sticky as /tmp is. The last one
belongs to this user alone.
"""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path

_MOST_LINKS = 40


def distrust(folder: Path) -> str | None:
    """Why what lies in a folder, or will, is not to be believed; None where this user alone can have put it there.

    A folder that is not there yet is judged by the way to it.
    """
    if not hasattr(os, "geteuid"):
        return None
    try:
        return _along(os.path.abspath(folder))
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror or error}"


def _along(path: str) -> str | None:
    here, names, links = os.sep, path.split(os.sep)[::-1], 0
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if reason := _changeable(here):
            return reason
        entry = os.path.dirname(here) if name == ".." else os.path.join(here, name)
        try:
            status = os.lstat(entry)
        except FileNotFoundError:
            return None
        if status.st_uid not in _trusted_owners():
            return f"{entry} belongs to another user (number {status.st_uid})"
        if stat.S_ISLNK(status.st_mode):
            links, target = links + 1, os.readlink(entry)
            if links > _MOST_LINKS:
                return f"{entry} is a link without end"
            names += target.split(os.sep)[::-1]
            here = os.sep if os.path.isabs(target) else here
        elif stat.S_ISDIR(status.st_mode):
            here = entry
        else:
            return f"{entry} is not a folder"
    return _not_own(here)


def _changeable(folder: str) -> str | None:
    """Why others may exchange what lies in a folder for something else."""
    status = os.lstat(folder)
    if _others_write(status) and not status.st_mode & stat.S_ISVTX:
        return f"others may write to {folder} (chmod go-w forbids it)"
    return None


def _not_own(folder: str) -> str | None:
    status = os.lstat(folder)
    if status.st_uid != os.geteuid():
        return f"{folder} belongs to another user (number {status.st_uid})"
    if _others_write(status):
        return f"others may write to {folder} (chmod go-w forbids it)"
    return None


def own_file(status: os.stat_result) -> bool:
    """Is this a plain file that this user alone may write?"""
    if not stat.S_ISREG(status.st_mode):
        return False
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not _others_write(status))


def _others_write(status: os.stat_result) -> bool:
    """Whether anybody but the owner may write; a group of this user alone, as many systems have it, is nobody else."""
    by_group = bool(status.st_mode & stat.S_IWGRP) and not _is_private(status.st_gid)
    return by_group or bool(status.st_mode & stat.S_IWOTH)


@cache
def _is_private(group: int) -> bool:
    """Is that the group that was made for this user, without other members?"""
    try:
        import grp
        import pwd

        user, known = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except (ImportError, KeyError):
        return False
    if user.pw_gid != group or known.gr_name != user.pw_name or not {*known.gr_mem} <= {user.pw_name}:
        return False
    return all(one.pw_gid != group or one.pw_uid == user.pw_uid for one in pwd.getpwall())  # whose first group it is


def _trusted_owners() -> frozenset[int]:
    return frozenset({os.geteuid(), *_system_owners()})


@cache
def _system_owners() -> frozenset[int]:
    """Whom the folders of the system belong to: root, or what stands for it in a container where root is unknown."""
    try:
        known = [[int(word) for word in line.split()] for line in Path("/proc/self/uid_map").read_text().splitlines()]
        if not any(outside <= 0 < outside + count for _, outside, count in known):
            return frozenset({0, int(Path("/proc/sys/kernel/overflowuid").read_text())})
    except (OSError, ValueError):
        pass
    return frozenset({0})
