"""Polling: the schedule of polls, the requests, and the updates by their answers."""
