"""A pipeline file: its form, its schema of rows, and the plan that it is compiled to."""
