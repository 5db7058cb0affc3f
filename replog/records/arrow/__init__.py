"""Records as Arrow: the decoder's buffers as arrays (`arrays`), batches of bounded size (`bounded`), names and types (`columns`)."""
