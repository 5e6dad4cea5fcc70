"""What `tailtrace doctor` looks at."""
