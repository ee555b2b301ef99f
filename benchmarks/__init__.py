"""Measurements, side by side with the peer, as ratios."""
