"""Compares two commits on one machine, so that no figure falls unseen: ``python -m bench guard COMMIT``.

Figures of two days or of two machines do not compare, and neither do those of two processes that measured one after the
other for minutes.  So both commits are laid out side by side (`trees`), each with its own compiled modules and nothing of
the other's, a dozen short measurements (`lines`) run in processes of their own that take turns (`turns`, `worker`), and
what came out is judged by one rule (`verdict`) and shown (`table`).
"""
