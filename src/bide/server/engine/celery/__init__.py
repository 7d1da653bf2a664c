"""The Celery engine: services send hints through a broker, and workers on any machine run the jobs."""
