-- What was spent at another gateway before the budget was created, in units of 1e-9 USD.
ALTER TABLE budgets ADD COLUMN opening_nanos BIGINT;
