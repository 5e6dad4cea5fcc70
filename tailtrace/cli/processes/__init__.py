"""The processes of `tailtrace up` and `tailtrace demo`: a parent, the owner of the data directory, the lab."""
