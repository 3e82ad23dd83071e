-- Vectors of a provider belong to the organization that asked for them: its provider may be of its own making, so they
-- say nothing to others. Vectors from before are removed; they are computed again when needed.
DELETE FROM skill_vectors WHERE embedder <> 'builtin/hash-v1/256';
ALTER TABLE skill_vectors ADD COLUMN org_id TEXT REFERENCES orgs (id) ON DELETE CASCADE;
CREATE INDEX skill_vectors_org_id ON skill_vectors (org_id) WHERE org_id IS NOT NULL;
