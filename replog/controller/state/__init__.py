"""What the metadata log determines: each registry replays its own records on the timeline."""
