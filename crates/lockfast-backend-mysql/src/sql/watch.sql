-- A client wants events for so long.
CREATE PROCEDURE lockfast_watch(IN who CHAR(12), IN lasts_us BIGINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE until_us BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) + lasts_us;
  UPDATE lockfast_clients SET watches_us = until_us WHERE client = UNHEX(who);
  UPDATE lockfast_store SET watched_us = GREATEST(watched_us, until_us) WHERE id = 1;
END
