-- When the running attempt was found to be much longer than others of its kind; NULL: it was not.
ALTER TABLE jobs ADD COLUMN overdue_at REAL;
