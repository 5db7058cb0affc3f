"""Opening a log after a clean stop or a crash: what is believed, read and cut, and by which notes beside the log."""
