"""Tables of results that are drawn piece by piece."""

import pytest

from benchmarks import pieces, regimes

HEADING = ["# Costs", "", "- commit: 22222222", "- code: 2222222222222222", ""]
COLUMNS = ("set", "epsilon", "auto")


def merged(drawn, page):
    rows = {tuple(cells[:2]): cells for cells in drawn}
    return pieces.merged(HEADING, "Words.", COLUMNS, rows, 5, page)


def test_a_row_that_is_drawn_again_takes_its_place_and_others_stay(tmp_path):
    page = tmp_path / "page.md"
    old = "1 | 11111111 | 1111111111111111 |"
    page.write_text(
        f"# Costs\n\n- command: `--sets a|b`\n\nWords.\n\n| set | epsilon | auto | draws | commit | code |\n"
        f"{'| --- ' * 6}|\n| a, k = 3 | 0.3 | 1.5 | {old}\n| b | 0.3 | 1.2 | {old}\n\n## More\n\n| set |\n"
    )
    lines = merged([["b", "0.3", "1.1"], ["c", "1.0", "1.0"]], page)
    new = "5 | 22222222 | 2222222222222222 |"
    assert [line for line in lines if line.startswith(("| a", "| b", "| c"))] == [
        f"| a, k = 3 | 0.3 | 1.5 | {old}",
        f"| b | 0.3 | 1.1 | {new}",
        f"| c | 1.0 | 1.0 | {new}",
    ]
    assert lines[-3:] == ["## More", "", "| set |"]
    assert "- code: 1111111111111111" in lines


def test_a_page_of_new_rows_has_the_code_of_its_run(tmp_path):
    lines = merged([["b", "0.3", "1.1"]], None)
    assert lines[:5] == HEADING
    (tmp_path / "page.md").write_text("\n".join(lines) + "\n")
    assert merged([["b", "0.3", "1.1"]], tmp_path / "page.md") == lines
    assert merged([["b", "0.3", "1.1"]], tmp_path / "none.md") == lines


@pytest.mark.parametrize(
    ("now", "draws", "before"),
    [("1.5", 10, "1.9 at 00000000"), ("1.4", 10, "1.5 at 11111111"), ("1.4", 20, "-")],
)
def test_before_is_the_last_figure_that_was_another(now, draws, before):
    last = ["a", "0.3", "1.9 at 00000000", "1.5", "10", "11111111", "1111111111111111"]
    assert regimes.before_of(last, now, draws) == before
    assert regimes.before_of(None, now, draws) == "-"
