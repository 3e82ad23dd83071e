-- What a budget does about calls without a price: allow, refuse or flat, and the flat charge in units of 1e-12 USD.
ALTER TABLE budgets ADD COLUMN unpriced TEXT NOT NULL DEFAULT 'allow';
ALTER TABLE budgets ADD COLUMN unpriced_flat BIGINT;
