"""Frames in a terminal."""

import io
import re

import numpy as np

from outgrid.report.blocks import draw_blocks, shows_colours

BLOCK = re.compile("\x1b\\[38;2;(\\d+);(\\d+);(\\d+)m\x1b\\[48;2;(\\d+);(\\d+);(\\d+)m\u2580")


def colours(text):
    """Of the cells: (rows, columns, 3)."""
    lines = [np.array(BLOCK.findall(line), int).reshape(-1, 2, 3) for line in text.split("\n")]
    return np.concatenate([line.transpose(1, 0, 2) for line in lines])


def test_values_of_both_signs_are_blue_and_red_about_white():
    found = colours(draw_blocks(np.array([[-2.0, 0.0], [1.0, np.nan]])))
    assert found[0].tolist() == [[33, 102, 172], [247, 247, 247]]
    assert found[1, 0, 0] > found[1, 0, 2]
    assert found[1, 1].tolist() == [128, 128, 128]


def test_other_values_rise_from_dark_to_light():
    found = colours(draw_blocks(np.arange(6.0).reshape(3, 2)))
    assert found.shape == (4, 2, 3)  # the last row is shown twice
    assert (np.diff(found[:3].reshape(-1, 3)[:, 1]) > 0).all()
    assert draw_blocks(np.full((2, 2), np.nan)).count("128;128;128") == 4


def test_large_frames_are_sampled():
    assert colours(draw_blocks(np.zeros((1000, 100)))).shape == (40, 4, 3)


def test_colours_are_for_terminals_that_have_them():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert shows_colours(Terminal(), {"COLORTERM": "truecolor"})
    assert not shows_colours(Terminal(), {"COLORTERM": "truecolor", "NO_COLOR": "1"})
    assert not shows_colours(Terminal(), {})
    assert not shows_colours(io.StringIO(), {"COLORTERM": "truecolor"})
