"""Many runs: sweeps over configurations, and what is made of their results: tables, figures, a report."""
