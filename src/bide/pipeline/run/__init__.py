"""One run of a pipeline: the phases of its exports, the checkpoint, the requests to the API, and the schedule."""
