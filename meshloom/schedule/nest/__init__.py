"""The loop nest as data: ``nodes``, what can be said, and ``types``; ``graph``, a kernel's arithmetic said in them;
``reduce``, values merged into others; ``walk``, looking at nests; ``printer``, their text."""
