"""Estimators: arrays in, arrays out. Nothing here reads the store; docs/methods.md says what each is and how wrong."""
