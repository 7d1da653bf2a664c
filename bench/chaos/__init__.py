"""Kills processes at random while jobs run, then checks the record for lost, repeated and twice reported jobs."""
