"""Labels of keystreams: injective, and whole."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.transforms.core.keystream import encode_label

PARTS = st.lists(
    st.one_of(st.binary(max_size=9), st.text(max_size=5), st.integers(), st.floats(allow_nan=False)), max_size=4
)


def _tagged(parts):
    return [(type(part), part.hex() if isinstance(part, float) else part) for part in parts]


@settings(max_examples=300, derandomize=True, deadline=None)
@given(PARTS, PARTS)
def test_labels_are_injective(left, right):
    assert (encode_label(*left) == encode_label(*right)) == (_tagged(left) == _tagged(right))


@settings(max_examples=200, derandomize=True, deadline=None)
@given(PARTS)
def test_labels_can_be_read_back(parts):
    label, found = encode_label(*parts), []
    while label:
        size = int.from_bytes(label[1:9], "big")
        tag, payload, label = label[:1], label[9 : 9 + size], label[9 + size :]
        decode = {b"b": bytes, b"s": bytes.decode, b"i": int, b"f": lambda text: float.fromhex(text.decode())}[tag]
        found.append(decode(payload))
    assert _tagged(found) == _tagged(parts)
