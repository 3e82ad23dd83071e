-- Whether a provider keeps nothing of calls, as agreed with it. Requests that demand it use only such providers.
ALTER TABLE provider_credentials ADD COLUMN no_retention BIGINT NOT NULL DEFAULT 0;
