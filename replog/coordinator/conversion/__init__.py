"""Groups that go from one protocol to the other while their members read, and members of both in one group."""
