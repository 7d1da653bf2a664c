"""The working end: takes jobs, runs them, tells how they are going."""
