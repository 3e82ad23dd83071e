-- The user or key that invited. Null for invitations of earlier versions.
ALTER TABLE invites ADD COLUMN invited_by TEXT;
