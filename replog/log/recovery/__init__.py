"""Opening a log after a clean stop or a crash: which bytes are believed, read and cut, and by which notes beside the log."""
