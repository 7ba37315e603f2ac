"""The version, in the one place that the build, the package and the tests read it from."""

__version__ = "0.1.0"
