"""Writes that are there once: each task's rows in a transaction of its own, and one record that decides about all of them.

A task writes its rows in a transaction, and *prepares* it: from then on no time-out ends it.  When all tasks have, the driver
writes a *decision* for the writer (a query, an application) and the version (a batch): these transactions, and no others.  That
record is the commit point.  What follows may be repeated by anybody at any time: the decided transactions are committed, all
others of the same version and of those before are aborted, and the decision is written once more, as done.

`names` says what transactions and versions are called, `decisions` what a decision looks like, `settling` what the driver does,
step by step, over `ledger`, which does it at brokers; `task` writes the rows of one task, `others` looks after drivers that are gone.

============================== =====================================================================================
the driver dies                what the next one finds, and does
============================== =====================================================================================
before the decision            prepared transactions that nobody decides for: the version is written anew, and they are
                               aborted when that is decided
between decision and done      the decision: it commits the decided transactions again, which changes nothing where it had
                               been done, and writes nothing new
behind done                    a version that is written; names of its transactions may be left until they expire
============================== =====================================================================================
"""
