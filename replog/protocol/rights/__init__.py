"""Says what each API needs that a client may do, and sees to it before and in the handlers."""
