"""Many runs from one file: planned, run, resumed, packed."""
