"""The version of the product, said once."""

VERSION = "0.1.0"
