"""`tailtrace run -- CMD`: instrument a program, and every Python process it starts, without a line in its code."""
