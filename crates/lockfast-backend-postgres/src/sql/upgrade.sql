-- From earlier versions; done again it does nothing.
ALTER TABLE {schema}.clients ADD COLUMN IF NOT EXISTS watched_us bigint NOT NULL DEFAULT 0;
UPDATE {schema}.clients c SET watched_us = s.watched_us FROM {schema}.store s
  WHERE c.watched_us <> s.watched_us;
ALTER TABLE {schema}.clients ADD COLUMN IF NOT EXISTS channel text;
ALTER TABLE {schema}.clients ADD COLUMN IF NOT EXISTS presence bigint;
ALTER TABLE {schema}.store ADD COLUMN IF NOT EXISTS events text NOT NULL DEFAULT {secret_channel};
ALTER TABLE {schema}.locks ADD COLUMN IF NOT EXISTS call bigint NOT NULL DEFAULT 0;
ALTER TABLE {schema}.locks ADD COLUMN IF NOT EXISTS lasts_us bigint NOT NULL DEFAULT 0;
ALTER TABLE {schema}.locks ADD COLUMN IF NOT EXISTS passed_us bigint NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS claims_in_mode ON {schema}.claims (name) WHERE mode <> 0 AND stage < 2;
-- No function stores anything else; by hand it cannot be done by mistake.
ALTER TABLE {schema}.store DROP CONSTRAINT IF EXISTS store_possible,
  ADD CONSTRAINT store_possible CHECK (floor >= 0) NOT VALID;
ALTER TABLE {schema}.locks DROP CONSTRAINT IF EXISTS locks_possible,
  ADD CONSTRAINT locks_possible CHECK (fence >= 0 AND crowd >= 0) NOT VALID;
ALTER TABLE {schema}.claims DROP CONSTRAINT IF EXISTS claims_possible,
  ADD CONSTRAINT claims_possible CHECK (stage BETWEEN -1 AND 2 AND mode >= -1) NOT VALID;
-- What only functions call answers otherwise now, or is asked otherwise.
DO $do$
DECLARE
  inner_one regprocedure;
BEGIN
  FOR inner_one IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace
    AND p.proname IN ('note', 'tell', 'is_there', 'settle', 'drop_waiting', 'drop_ended',
      'drop_silent', 'blocked_us', 'lock_row', 'acquire', 'enter', 'release', 'renew', 'refresh')
  LOOP
    EXECUTE format('DROP FUNCTION %s', inner_one);
  END LOOP;
END $do$;
