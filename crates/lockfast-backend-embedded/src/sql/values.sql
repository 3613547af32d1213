-- Values that are written by comparing versions. They outlive the machine's start, so their end is
-- a time of the wall clock, in microseconds; 0 for those without one.
CREATE TABLE value (
    name    TEXT    PRIMARY KEY,
    version BLOB    NOT NULL,
    bytes   BLOB    NOT NULL,
    ends_us INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX value_ends ON value (ends_us) WHERE ends_us > 0;
