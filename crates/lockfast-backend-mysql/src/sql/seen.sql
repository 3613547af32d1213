-- Who has an opened lock and how many wait, in @lockfast_seen:
-- waiting[;mode.fence.since_us.remaining_us.client]…
CREATE PROCEDURE lockfast_seen(IN lock_name VARBINARY(255))
  SQL SECURITY INVOKER
BEGIN
  SET @lockfast_seen = CAST(@lockfast_waiting AS CHAR);
  IF @lockfast_sharing > 0 THEN
    SELECT CONCAT_WS(';', @lockfast_waiting, GROUP_CONCAT(CONCAT_WS('.', c.mode, c.fence, c.since_us,
               c.until_us - @lockfast_now, HEX(c.client)) ORDER BY c.ticket SEPARATOR ';'))
      INTO @lockfast_seen
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_turn)
     WHERE c.name = lock_name AND c.stage = 1;
  END IF;
  IF @lockfast_client IS NOT NULL THEN
    SET @lockfast_seen = CONCAT_WS(';', @lockfast_seen, CONCAT_WS('.', 0, @lockfast_fence,
      @lockfast_since, @lockfast_until - @lockfast_now, HEX(@lockfast_client)));
  END IF;
END
