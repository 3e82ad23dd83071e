-- Verdicts of evals go with the log rows that they are on; found by the row, of those that are on one.
CREATE INDEX eval_results_by_row ON eval_results (org_id, log_id) WHERE log_id IS NOT NULL AND case_id IS NULL;
