"""Two calls share a key exactly when the texts of all their parts are equal, whatever stands between the parts."""

from hypothesis import assume, given, strategies as st

from segmented.locks.call_keys import ESCAPE, KeyExpression, part_text
from segmented.locks.durations import checked_name

CLOSE = st.text(alphabet="ab:-#%2DA{}é\n ", min_size=1, max_size=4)
"""Few characters, so that parts and what stands between them often meet."""
PARTS = st.one_of(CLOSE, st.text(min_size=1, max_size=8), st.integers(), st.booleans(), st.uuids(), st.dates())
BETWEEN = st.text(alphabet="ab:-#%2DA é", min_size=1, max_size=3).filter(lambda text: set(text) - ESCAPE)
EDGES = st.text(alphabet="ab:%2", max_size=2)


@given(data=st.data(), separators=st.lists(BETWEEN, max_size=3), before=EDGES, after=EDGES)
def test_calls_share_a_key_exactly_when_their_parts_have_the_same_texts(
    data: st.DataObject, separators: list[str], before: str, after: str
) -> None:
    names = [f"p{index}" for index in range(len(separators) + 1)]
    fields = "".join(f"{between}{{{name}}}" for between, name in zip(["", *separators], names, strict=True))
    expression = KeyExpression(before + fields + after)
    first, second = (data.draw(st.tuples(*[PARTS] * len(names))) for _ in range(2))
    texts = [[part_text(part, "p") for part in parts] for parts in (first, second)]
    keys = [expression.key(dict(zip(names, parts, strict=True))) for parts in (first, second)]
    assert (keys[0] == keys[1]) == (texts[0] == texts[1])
    assert all(len(key) > 1024 or checked_name(key) == key for key in keys)


@given(left=CLOSE, right=CLOSE, separator=BETWEEN, cut=st.integers(min_value=1, max_value=8))
def test_moving_the_border_between_two_parts_changes_the_key(left: str, right: str, separator: str, cut: int) -> None:
    whole = left + separator + right
    assume(0 < cut < len(whole) - 1)
    expression = KeyExpression(f"{{a}}{separator}{{b}}")
    moved = {"a": whole[:cut], "b": whole[cut:]}
    assume(moved != {"a": left, "b": right})
    assert expression.key({"a": left, "b": right}) != expression.key(moved)
