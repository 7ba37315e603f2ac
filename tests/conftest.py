"""What all tests share."""


def pytest_make_parametrize_id(config, val, argname):
    """Name bytes by their length: gzip writes the time into its header, and xdist needs the same names twice."""
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) else None
