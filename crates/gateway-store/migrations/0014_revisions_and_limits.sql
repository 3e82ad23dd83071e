-- Counts the changes of a webhook. An attempt that began before a change does not mark the changed webhook.
ALTER TABLE webhooks ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;

-- Limits that exceed 64 bits in units of 1e-12 USD: then these columns have them in units of 1e-9 USD.
ALTER TABLE budgets ADD COLUMN soft_limit_coarse BIGINT;
ALTER TABLE budgets ADD COLUMN hard_limit_coarse BIGINT;
