"""The selector as part of a sentence-transformers model: put together, saved, loaded, looked into."""

from s2sent.model.build import build
from s2sent.model.load import load
from s2sent.model.pooling import PoolingMode, SelectivePooling

__all__ = ["PoolingMode", "SelectivePooling", "build", "load"]
