-- Tells those who watch what happened: q queued, g granted, r released, a abandoned, v revoked; or that a
-- value was changed: c.
CREATE PROCEDURE lockfast_tell(
  IN kind CHAR(1), IN lock_name VARBINARY(255), IN whose BINARY(6), IN its_fence BIGINT,
  IN lasts_us BIGINT)
  SQL SECURITY INVOKER
BEGIN
  INSERT INTO lockfast_mail (client, sent_us, body)
  SELECT c.client, @lockfast_now,
         CONCAT_WS('\t', 'E', @lockfast_now, kind, its_fence, HEX(whose), lasts_us, lock_name)
    FROM lockfast_clients c WHERE c.watches_us > @lockfast_now;
  SELECT CONCAT(@lockfast_wakes, COALESCE(GROUP_CONCAT(',', HEX(c.client) SEPARATOR ''), ''))
    INTO @lockfast_wakes
    FROM lockfast_clients c
   WHERE c.watches_us > @lockfast_now AND LOCATE(CONCAT(',', HEX(c.client)), @lockfast_wakes) = 0;
END
