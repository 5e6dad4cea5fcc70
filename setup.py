"""The optional C extension; everything else of the build is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "tailtrace.instrumentation._fast",
            ["instrumentation/_fast.c"],
            extra_compile_args=["-O2", "-g0"],
            # Without a compiler or Python's headers the build goes on, and the Python twins run.
            optional=True,
        )
    ]
)
