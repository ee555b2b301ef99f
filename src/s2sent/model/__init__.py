"""The selector as part of a sentence-transformers model: put together, saved, loaded, looked into.

What users need of it is at the top: `s2sent.build`, `s2sent.load`, `s2sent.SelectivePooling`.
"""
