"""Fusion: which loops of a program become one, and what is left to store.

A *group* is a stretch of operations that meet at the elements of one set: loops over the set itself, and loops over
other sets whose increments all go to it. Such a group can run as one loop over the set (``schedule/fused/``) when no
part of it reads, at other elements than its own, what an earlier part has written. Inside a group values are symbols:
what one part writes the next takes as an expression, and only what is left at the end goes to memory.

Memory is a set of buffers. Every field has its own; a group that reads a field through a map cannot write it there, and
writes to a second buffer instead. A temporary field that is a mere copy of another needs no buffer of its own: it is
the other's buffer, until that is written again. What nobody reads again is not stored at all.
"""
