-- Which version of all this there is. It comes last, so that it tells of a complete migration.
CREATE OR REPLACE FUNCTION {schema}.version() RETURNS integer
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT {version} $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
