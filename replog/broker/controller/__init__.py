"""The controller on this node, the way to the active one, and a broker's life as the controller sees it."""
