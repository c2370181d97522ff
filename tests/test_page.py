"""Tables for people."""

from simco_methods.page import markdown_table


def test_a_markdown_table_is_aligned():
    assert markdown_table([["run", "accuracy"], ["simco", "91.2"]]) == (
        "| run   | accuracy |\n| ----- | -------- |\n| simco | 91.2     |\n"
    )


def test_a_bar_in_a_cell_does_not_end_it():
    assert markdown_table([["a|b", "c"], ["d", "|"]]) == (
        "| a\\|b | c   |\n| ---- | --- |\n| d    | \\|  |\n"
    )
