"""Speed, each figure as a ratio: `make bench`, and beside other frameworks: `make bench-peers`."""
