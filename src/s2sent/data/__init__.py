"""Readers that check what they read."""
