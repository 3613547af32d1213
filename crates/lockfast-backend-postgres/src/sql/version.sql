-- The version of the oldest program that this schema serves, for programs that are older than it.
CREATE OR REPLACE FUNCTION {schema}.serves_since() RETURNS integer
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT {serves_since} $$;

-- Which version of all this there is. It comes last, so that it tells of a complete migration.
CREATE OR REPLACE FUNCTION {schema}.version() RETURNS integer
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT {version} $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;

-- Whoever could take locks before may call what is new.
DO $do$
DECLARE
  entitled regrole;
BEGIN
  FOR entitled IN SELECT DISTINCT a.grantee FROM pg_proc p, aclexplode(p.proacl) a
    WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname = 'serve'
      AND a.privilege_type = 'EXECUTE' AND a.grantee NOT IN (0, p.proowner)
  LOOP
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO %s', entitled);
  END LOOP;
END $do$;
