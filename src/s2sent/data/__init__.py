"""Corpora, sentence pairs and SentEval folders: readers that check what they read."""
