"""When to send requests: learned durations, the plan of polls, the request budget, rate-limit headers."""
