-- From earlier versions; done again it does nothing.
ALTER TABLE {schema}.clients ADD COLUMN IF NOT EXISTS watched_us bigint NOT NULL DEFAULT 0;
UPDATE {schema}.clients c SET watched_us = s.watched_us FROM {schema}.store s;
