-- The server's clock; never that of the transaction, which stands still. A double holds whole
-- microseconds exactly for two more centuries, and is several times faster than extract().
CREATE OR REPLACE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint $$;

-- When the present statement began: not after it is answered for, and before it sees anything.
CREATE OR REPLACE FUNCTION {schema}.beginning() RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint $$;

-- The client of a holder.
CREATE OR REPLACE FUNCTION {schema}.client_of(holder uuid) RETURNS bytea LANGUAGE sql IMMUTABLE
AS $$ SELECT substring(uuid_send(holder) FROM 1 FOR 6) $$;

-- The holders of a client lie between these, so that the key of claims finds them.
CREATE OR REPLACE FUNCTION {schema}.first_of(client bytea) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT (encode(client, 'hex') || repeat('0', 20))::uuid $$;
CREATE OR REPLACE FUNCTION {schema}.last_of(client bytea) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT (encode(client, 'hex') || repeat('f', 20))::uuid $$;
