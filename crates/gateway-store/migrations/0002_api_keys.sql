-- Several credentials of one provider: a JSON list of {label, weight, sealed}.
ALTER TABLE provider_credentials ADD COLUMN api_keys TEXT NOT NULL DEFAULT '[]';
