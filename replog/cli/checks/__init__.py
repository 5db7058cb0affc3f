"""What verification, repair and checks of a log find, as rows."""
