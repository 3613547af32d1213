-- The server's clock; never that of the transaction, which stands still.
CREATE OR REPLACE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- The client of a holder.
CREATE OR REPLACE FUNCTION {schema}.client_of(holder uuid) RETURNS bytea LANGUAGE sql IMMUTABLE
AS $$ SELECT substring(uuid_send(holder) FROM 1 FOR 6) $$;

-- A client as the second key of an advisory lock.
CREATE OR REPLACE FUNCTION {schema}.key_of(client bytea) RETURNS integer LANGUAGE sql IMMUTABLE
AS $$ SELECT ('x' || encode(substring(client FROM 1 FOR 4), 'hex'))::bit(32)::integer $$;
