-- How far the attempts of a run have come, as JSON; NULL: nothing is known.
ALTER TABLE jobs ADD COLUMN loss_record TEXT;
