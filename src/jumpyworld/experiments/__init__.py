"""Experiments: what is measured again and again, and the tables it ends in."""
