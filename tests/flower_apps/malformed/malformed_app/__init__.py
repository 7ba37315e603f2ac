"""One client of ten sends what it should not."""
