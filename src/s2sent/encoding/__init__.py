"""Text in, vectors out."""

from s2sent.encoding.files import encode_file

__all__ = ["encode_file"]
