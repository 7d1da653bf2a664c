"""How many calls the client makes on the path of one job."""
