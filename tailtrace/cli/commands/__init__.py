"""One module a command: what the user may say, and what is printed."""
