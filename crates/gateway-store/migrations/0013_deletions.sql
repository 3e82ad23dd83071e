-- Deleted organizations whose rows in the log database are not deleted yet. `lease` names the node that deletes them.
CREATE TABLE org_purges (
    id TEXT PRIMARY KEY,
    deleted_at BIGINT NOT NULL,
    lease TEXT,
    leased_until BIGINT
);

-- The number of an organization's eval results, so that metrics need not count them. Triggers keep it, because results
-- are also deleted by foreign keys, and by nodes of the previous version.
CREATE TABLE eval_counts (
    org_id TEXT PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
    passed BIGINT NOT NULL,
    failed BIGINT NOT NULL
);

-- only sqlite
CREATE TRIGGER eval_results_added AFTER INSERT ON eval_results BEGIN
    INSERT INTO eval_counts (org_id, passed, failed) VALUES (NEW.org_id, NEW.passed, 1 - NEW.passed)
    ON CONFLICT (org_id) DO UPDATE SET passed = passed + excluded.passed, failed = failed + excluded.failed;
END;
CREATE TRIGGER eval_results_removed AFTER DELETE ON eval_results BEGIN
    UPDATE eval_counts SET passed = passed - OLD.passed, failed = failed - (1 - OLD.passed)
    WHERE org_id = OLD.org_id;
END;
-- end
-- only postgres
CREATE FUNCTION count_eval_results() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO eval_counts (org_id, passed, failed)
        SELECT org_id, SUM(passed), SUM(1 - passed) FROM changed GROUP BY org_id ORDER BY org_id
        ON CONFLICT (org_id) DO UPDATE SET passed = eval_counts.passed + excluded.passed,
            failed = eval_counts.failed + excluded.failed;
    ELSE
        UPDATE eval_counts c SET passed = c.passed - r.passed, failed = c.failed - r.failed
        FROM (SELECT org_id, SUM(passed) AS passed, SUM(1 - passed) AS failed FROM changed GROUP BY org_id) r
        WHERE c.org_id = r.org_id;
    END IF;
    RETURN NULL;
END
$body$;
CREATE TRIGGER eval_results_added AFTER INSERT ON eval_results
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_eval_results();
CREATE TRIGGER eval_results_removed AFTER DELETE ON eval_results
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_eval_results();
-- end
INSERT INTO eval_counts (org_id, passed, failed)
SELECT org_id, SUM(passed), SUM(1 - passed) FROM eval_results GROUP BY org_id;
