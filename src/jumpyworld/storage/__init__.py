"""Files, safe and exact: complete or absent, never half-written, and never able to run code."""
