"""Groups of the classic protocol: members meet in generations, one of them assigns."""
