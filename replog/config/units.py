"""Numbers that the configuration keys are written with."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
YEAR_MINUTES = 365 * 24 * 60
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
