"""How fast and how cheaply events reach their listeners."""
