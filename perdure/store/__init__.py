"""Where history's commits are kept: the ``Store`` protocol and its implementations.

A store commits what the core has decided, all of it or nothing, and gives it back in order. It
judges nothing. Every implementation passes the same examination, in ``tests/contract``.
"""
