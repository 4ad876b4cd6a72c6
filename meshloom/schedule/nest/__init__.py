"""The loop nest as data: ``nodes``, what can be said, of which ``types``; ``graph``, a kernel's arithmetic in them;
``reduce``, values merged into others; ``binned``, sums in any order; ``walk``, looking at nests; ``printer``, their
text."""

from meshloom.schedule.nest import printer  # noqa: F401 - without it nodes have no text
