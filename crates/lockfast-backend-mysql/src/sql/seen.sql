-- Who has an opened lock and how many wait, in @lockfast_seen:
-- waiting[;mode.fence.since_us.remaining_us.client]…
CREATE PROCEDURE lockfast_seen(IN lock_name VARBINARY(255))
  SQL SECURITY DEFINER
BEGIN
  SET @lockfast_seen = '0';
  IF @lockfast_crowd > 0 THEN
    SELECT CONCAT_WS(';', COUNT(IF(stage = 0, 1, NULL)),
             GROUP_CONCAT(IF(stage = 1, CONCAT_WS('.', mode, fence, since_us,
               until_us - @lockfast_now, HEX(LEFT(holder, 6))), NULL)
               ORDER BY ticket SEPARATOR ';'))
      INTO @lockfast_seen
      FROM lockfast_claims WHERE name = lock_name;
  END IF;
  IF @lockfast_holder IS NOT NULL THEN
    SET @lockfast_seen = CONCAT_WS(';', @lockfast_seen, CONCAT_WS('.', 0, @lockfast_fence,
      @lockfast_since, @lockfast_until - @lockfast_now, HEX(LEFT(@lockfast_holder, 6))));
  END IF;
END
