"""What every state that lives in a partition of an internal topic needs: loading, replay, commits, timers."""
