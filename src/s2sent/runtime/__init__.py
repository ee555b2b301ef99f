"""A model as one graph, and the runtimes that run it without torch."""
