"""The arena: where a defense stands among all others, in fixed scenarios that everybody can repeat."""
