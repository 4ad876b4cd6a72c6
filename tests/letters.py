"""Letters for texts that hypothesis draws."""

from __future__ import annotations

from hypothesis import strategies as st

#: What UTF-8 can hold, as hypothesis takes by itself: but it finds that by encoding every letter there is, which takes
#: seconds in each process.
ENCODABLE = st.characters(exclude_categories=["Cs"])
