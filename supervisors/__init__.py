"""The supervisor tree that starts the actors and workers, and restarts those that die.

Child specifications, strategies and restart intensity are pure and keep the vocabulary of
Erlang/OTP; the supervisors themselves are actors in the root process of a node.
"""
