"""How many calls the client and the service make on the path of one job."""
