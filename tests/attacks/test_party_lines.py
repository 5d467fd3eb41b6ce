"""Lines with keys, on their way from party to party: cut, changed, swapped, replaced; names that look alike."""

import itertools
import pathlib
import re

import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR, party_line, validated_aggregate
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.transforms.masked import spoken_words as module
from dapple_dp.transforms.masked.spoken_words import spoken_words
from dapple_dp.transforms.numerics.masked.public_keys import public_part
from tests.scenes import lake

EVERYBODY = ("north", "east", AGGREGATOR, COLLECTOR)
KEYS = {name: public_part(bytes(range(start, start + 32))) for start, name in enumerate(EVERYBODY, 7)}
LINES = {name: party_line(name, key) for name, key in KEYS.items()}
NORTH = LINES["north"].partition(": ")[2]


def job_of(lines):
    """An aggregator's job with lines under `parties`, as people paste them."""
    pasted = "".join(f"  {line}\n" for line in lines)
    return validated_aggregate(yaml_text.parse(f"key_uri: k\nidentity_uri: own\nparties:\n{pasted}"))


def refusal_of(lines):
    with pytest.raises(ConfigError) as caught:
        job_of(lines)
    return str(caught.value)


def with_north(*lines):
    return [*lines, *(LINES[name] for name in EVERYBODY[1:])]


def test_lines_are_pasted_as_they_are_and_stand_for_keys_in_hex():
    in_hex = {name: key.hex() for name, key in KEYS.items()}
    assert job_of(LINES.values()).parties == in_hex
    assert job_of(f"{name}: {key}" for name, key in in_hex.items()).parties == in_hex


def test_a_line_is_short_enough_for_mail():
    """Mail programs break lines after 76 letters."""
    assert max(map(len, LINES.values())) <= 60
    assert len(party_line("n" * 26, KEYS["north"])) <= 76


@pytest.mark.parametrize("length", range(1, 48))
def test_a_line_that_was_cut_is_refused(length):
    assert "parties.north must be the whole line" in refusal_of(with_north(f"north: {NORTH[:length]}"))


@pytest.mark.parametrize("place", range(48))
def test_a_line_with_another_letter_is_refused(place):
    other = "A" if NORTH[place] != "A" else "B"
    changed = NORTH[:place] + other + NORTH[place + 1 :]
    assert "got one that is not of north or was changed" in refusal_of(with_north(f"north: {changed}"))


@pytest.mark.parametrize("changed", [NORTH.lower(), NORTH.upper(), f"{NORTH}=", f"{NORTH[:30]} {NORTH[30:]}", "é" * 48])
def test_a_line_that_mail_has_changed_is_refused(changed):
    assert "parties" in refusal_of(with_north(f'north: "{changed}"'))


def test_swapped_names_are_refused():
    east = LINES["east"].partition(": ")[2]
    swapped = [f"north: {east}", f"east: {NORTH}", LINES[AGGREGATOR], LINES[COLLECTOR]]
    assert "got one that is not of north or was changed" in refusal_of(swapped)


def test_one_name_is_that_of_one_party():
    """Also where a disk doesn't know capitals."""
    other = party_line("north", public_part(bytes(32)))
    assert "north appears twice" in refusal_of(with_north(LINES["north"], other))
    other = party_line("North", public_part(bytes(32)))
    assert "the same name (ignoring case) for north and North" in refusal_of(with_north(LINES["north"], other))
    assert "the same key for north and West" in refusal_of(
        with_north(LINES["north"], party_line("West", KEYS["north"]))
    )


ODD = [
    "../north",
    "a/b",
    "..",
    ".north",
    "",
    "n\u043erth",
    "nor\u200dth",
    "north\n",
    "north ",
    "\uff4eorth",
    "n:a",
    "n" * 129,
]


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_can_be_no_part_of_a_path_or_looks_like_another_is_refused(name, tmp_path):
    """The message shows the name in plain letters, so that nobody reads one name for another."""
    place = tmp_path / "identity"
    outcome = lake.run_command("party", "new", name, "--output", str(place))
    assert (outcome.code, outcome.out, place.exists()) == (2, "", False)
    assert outcome.err.isascii()
    with pytest.raises(ConfigError) as caught:
        validated_aggregate({"key_uri": "k", "identity_uri": "own", "parties": {**KEYS_IN_HEX, name: "ab" * 32}})
    assert str(caught.value).isascii()


KEYS_IN_HEX = {name: key.hex() for name, key in KEYS.items()}


# --- The six words


def test_a_key_that_was_replaced_has_other_words(tmp_path):
    """Whoever forwards lines can make one that is whole; its words are not those that the party reads out."""
    real = lake.run_command("party", "new", "north", "--output", str(tmp_path / "north")).out
    forged = party_line("north", public_part(bytes(range(100, 132))))
    assert job_of(with_north(forged)).parties["north"] != KEYS["north"].hex()
    said = real.splitlines()[-1].strip()
    assert len(said.split()) == 6
    assert said != spoken_words("north", public_part(bytes(range(100, 132))).hex())
    assert said == spoken_words("north", public_part((tmp_path / "north").read_bytes()).hex())


def test_words_follow_from_name_and_key_alone():
    key = "ab" * 32
    assert spoken_words("north", key) == spoken_words("north", key)
    different = {spoken_words(*each) for each in [("north", key), ("east", key), ("", key), ("north", "ba" * 32)]}
    assert len(different) == 4


def test_six_words_are_66_bits():
    """Every word can come in every place, and each place has bits of its own."""
    words = module._WORDS
    assert len(words) == len(set(words)) == 1 << 11
    found = [spoken_words("north", f"{number:064x}").split() for number in range(40)]
    assert all(len({each[place] for each in found}) > 30 for place in range(6))
    assert all(each in words for line in found for each in line)


def test_no_two_words_are_taken_for_each_other():
    """They begin with other four letters, and one letter that is changed, lost or added makes no other word."""
    words = module._WORDS
    assert len({word[:4] for word in words}) == len(words)
    assert all(re.fullmatch("[a-z]{4,7}", word) for word in words)
    without = [{word[:at] + word[at + 1 :] for at in range(len(word))} for word in words]
    holes = [{f"{word[:at]}?{word[at + 1 :]}" for at in range(len(word))} for word in words]
    assert not set(words) & set(itertools.chain.from_iterable(without))
    assert len(set(itertools.chain.from_iterable(holes))) == sum(map(len, holes))


HOMOPHONES = """
ate eight; bare bear; berry bury; board bored; brake break; buy by; cell sell; cent scent sent; cereal serial;
coarse course; dear deer; die dye; fair fare; feat feet; find fined; flea flee; flour flower; gorilla guerilla;
great grate; groan grown; hair hare; heal heel; hear here; hole whole; hour our; idle idol; knight night; knot not;
know no; lead led; leased least; loan lone; made maid; mail male; main mane; meat meet; medal metal; mined mind;
morning mourning; muscle mussel; naval navel; none nun; pail pale; pain pane; pair pear; patience patients; peace
piece; peak peek; plain plane; pole poll; poor pour; pray prey; principal principle; profit prophet; rain reign;
raise rays; read reed; right write; road rode; role roll; root route; rose rows; sail sale; scene seen; sea see;
seam seem; shear sheer; sight site cite; soar sore; sole soul; some sum; son sun; stair stare; stake steak;
stationary stationery; steal steel; suite sweet; tail tale; tide tied; toe tow; vain vein; waist waste; wait weight;
war wore; ware wear where; weak week; weather whether; wood would
"""


def test_no_two_words_sound_alike():
    words = set(module._WORDS)
    for group in HOMOPHONES.replace("\n", " ").split(";"):
        assert len(words & set(group.split())) <= 1, group


def test_the_list_says_where_it_comes_from():
    assert "CC BY 3.0 US" in module.__doc__
    assert "Electronic Frontier Foundation" in module.__doc__


def test_the_page_shows_lines_that_are_whole(tmp_path):
    page = pathlib.Path(__file__).resolve().parents[2] / "docs" / "how-to" / "run-a-federation.md"
    (block,) = re.findall(r"^```yaml\n(algorithm:.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    masked = yaml.safe_load(block)["masked"]
    parties = validated_aggregate({"key_uri": "k", "identity_uri": "own", "parties": masked["parties"]}).parties
    assert list(parties)[:2] == [AGGREGATOR, COLLECTOR]
