"""An encoder written from transforms/numerics/reports/FORMAT.md alone, in plain Python, against the test vectors."""

import json
import math

import pytest

from tests.scenes.reports import VECTORS_FILE

WORD = 1 << 64
STEP = 0x9E3779B97F4A7C15
VECTORS = json.loads(VECTORS_FILE.read_text())


def mix(z):
    z = (z + STEP) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


class Plain:
    """One report of a collection."""

    def __init__(self, public, nonce):
        self.public, self.paper = public, public["variant"] == "paper"
        key = bytes.fromhex(public["key"])
        self.low, self.high = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
        self.root = mix(mix(nonce ^ self.low) ^ self.high)
        self.depth, d = public["depth"], len(public["features"])
        self.width = max(64, 1 << (d + (1 if not self.paper else -1)).bit_length())

    def word(self, j):
        return mix((self.root + j * STEP) % WORD)

    def signs_at(self, first):
        words = [self.word(first + i) for i in range(self.width // 64)]
        return [-1 if words[i // 64] >> (i % 64) & 1 else 1 for i in range(self.width)]

    def plane(self, i):
        r = mix(mix(i ^ self.high) ^ self.low)
        rows = []
        for j in range(len(self.public["features"])):
            raw = mix((r + j * STEP) % WORD).to_bytes(8, "little")
            rows.append(2 * sum(o - 256 if o > 127 else o for o in raw) + 8)
        return rows

    def code(self, x):
        return sum(1 << i for i in range(self.depth) if dot(self.plane(i), x) >= 0)

    def subset(self):
        if self.public["variant"] == "leaves":
            return self.word(0) % (1 << self.depth)
        s = (self.depth + 3) * (self.word(0) >> 32) >> 32
        return 0 if s < 3 else (1 << (s - 3)) + self.word(0) % (1 << (s - 3))

    def transform(self, values):
        values = values + [0] * (self.width - len(values))
        return [sum(-v if (i & j).bit_count() % 2 else v for j, v in enumerate(values) if v) for i in range(self.width)]


def dot(one, two):
    return sum(a * b for a, b in zip(one, two, strict=False))


def position(choice, words):
    m, k, t = choice["size"], choice["near"], int(choice["threshold"])
    favored = words[0] < t
    b = k if favored else m - k
    residue = next(word for word in words[1:] if word < WORD - WORD % b) % b
    return residue if favored else k + residue


def nearest(plain, each, x):
    lifted = [*x, math.isqrt(4**20 - dot(x, x)), 349525]
    assert lifted == each["lifted"]
    assert plain.subset() == each["subset"]
    sign = -1 if (plain.subset() & plain.code(x)).bit_count() % 2 else 1
    rotation = plain.signs_at(1)
    y = plain.transform([sign * v * s for v, s in zip(lifted, rotation, strict=False)])
    choice, w = plain.public["choices"][0], plain.width // 64
    scores = [dot(plain.signs_at(1 + w + i * w), y) for i in range(choice["size"])]
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return order[position(choice, [int(word) for word in each["coins"]["1"]])]


def two_bits(plain, each, x):
    level = 1 + (plain.depth * (plain.word(0) >> 32) >> 32)
    subset = plain.word(0) % (1 << level)
    z = -1 if (subset & plain.code(x)).bit_count() % 2 else 1
    u = plain.transform(plain.signs_at(1 + plain.width // 64))
    u = [a * b for a, b in zip(u, plain.signs_at(1), strict=True)][: len(x)]
    opposite = int(each["coins"]["3"][0]) / WORD >= 0.5 + math.sqrt(dot(x, x)) / 2**21
    side = -1 if opposite else 1
    lies = [position(plain.public["choices"][i], [int(word) for word in each["coins"][str(i)]]) for i in range(2)]
    half = (dot(u, x) < 0) ^ (side * z < 0)
    return ((z == -1) ^ lies[0]) + 2 * (half ^ lies[1])


@pytest.mark.parametrize("variant", ["leaves", "nested", "paper"])
@pytest.mark.parametrize("number", range(6))
def test_the_page_gives_the_reports_of_the_reference(variant, number):
    public, each = VECTORS[variant]["parameters"], VECTORS[variant]["reports"][number]
    plain, x = Plain(public, int(each["nonce"])), each["lattice"]
    assert str(plain.root) == each["root"]
    assert [plain.plane(i) for i in range(plain.depth)] == VECTORS[variant]["planes"]
    assert plain.code(x) == each["code"]
    found = two_bits(plain, each, x) if variant == "paper" else nearest(plain, each, x)
    assert found == each["index"]


@pytest.mark.parametrize("number", range(5))
def test_the_lattice_is_the_truncated_point_while_it_is_inside(number):
    for vectors in VECTORS.values():
        each, radius = vectors["reports"][number], vectors["parameters"]["radius"]
        assert each["lattice"] == [math.trunc(value * (2.0**20 / radius)) for value in each["point"]]
