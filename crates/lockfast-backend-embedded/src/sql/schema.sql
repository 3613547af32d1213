-- One row: what concerns the whole store.
CREATE TABLE meta (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    -- Which start of the machine the claims belong to: a lease never outlives it.
    boot_id       TEXT    NOT NULL,
    -- The last fence that was handed out.
    fence         INTEGER NOT NULL,
    -- No fence from here on was handed out before this number was safe on the disk.
    fence_ceiling INTEGER NOT NULL,
    -- How many clients want to be told of events.
    watchers      INTEGER NOT NULL
);

-- The queues, each in the order of its tickets. Times are nanoseconds since the machine started.
CREATE TABLE claim (
    name     TEXT    NOT NULL,
    ticket   INTEGER NOT NULL,
    holder   BLOB    NOT NULL,
    client   BLOB    NOT NULL,
    -- 0 exclusive, -1 shared, N one of N permits.
    mode     INTEGER NOT NULL,
    -- 0 waiting, 1 granted, 2 revoked.
    stage    INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    from_ns  INTEGER NOT NULL,
    since_us INTEGER NOT NULL,
    ttl_ns   INTEGER NOT NULL,
    delay_ns INTEGER NOT NULL,
    ends_ns  INTEGER NOT NULL,
    floor    INTEGER NOT NULL,
    detached INTEGER NOT NULL,
    -- Why it was revoked.
    reason   TEXT    NOT NULL,
    PRIMARY KEY (name, ticket)
) WITHOUT ROWID;

-- Who asks, for people; once per connection and not per claim.
CREATE TABLE client (
    id      BLOB    PRIMARY KEY,
    program TEXT    NOT NULL,
    host    TEXT    NOT NULL,
    pid     INTEGER NOT NULL,
    text    TEXT
) WITHOUT ROWID;

-- Clients that want to be told of events.
CREATE TABLE watcher (
    client BLOB PRIMARY KEY
) WITHOUT ROWID;
