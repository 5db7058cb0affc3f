"""The handlers of groups: their members, offsets, lists and descriptions."""
