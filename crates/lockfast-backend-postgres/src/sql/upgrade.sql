-- From earlier versions; done again it does nothing.
ALTER TABLE {schema}.clients ADD COLUMN IF NOT EXISTS watched_us bigint NOT NULL DEFAULT 0;
UPDATE {schema}.clients c SET watched_us = s.watched_us FROM {schema}.store s;
-- What answers otherwise now, or is asked otherwise.
DROP FUNCTION IF EXISTS {schema}.note(text, text, bigint, uuid, bigint);
DROP FUNCTION IF EXISTS {schema}.tell(bytea, text);
DROP FUNCTION IF EXISTS {schema}.is_there(bytea, bigint, bigint);
DROP FUNCTION IF EXISTS {schema}.release(text, uuid);
DROP FUNCTION IF EXISTS {schema}.acquire(text, uuid, integer, bigint, bigint, bigint, bigint, boolean);
DROP FUNCTION IF EXISTS {schema}.enter({schema}.locks, uuid, integer, bigint, bigint, bigint, bigint,
  boolean, bigint);
