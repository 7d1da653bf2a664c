"""What bide is compared with, each set up as its documentation says; run by the Python of the bench's own venv."""
