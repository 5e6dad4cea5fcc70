"""Hooks into libraries and engines that are installed beside us, put in without a line in the user's code."""
