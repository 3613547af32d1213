-- Locks the row of a lock, makes it if there is none, and ends what has run out. Who has it stays
-- in the row: here it is only known whose client that is, and whether it is the one that asks.
CREATE PROCEDURE lockfast_open(IN lock_name VARBINARY(255), IN asker BINARY(16))
  SQL SECURITY INVOKER
BEGIN
  DECLARE hung BINARY(6);
  DECLARE ended INT DEFAULT 0;
  DECLARE ended_waiting, ended_sharing, ended_asleep, ended_offers INT;
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  SET @lockfast_fence = NULL;
  opening: LOOP
    SELECT l.fence, LEFT(l.holder, 6), l.holder IS NOT NULL AND l.holder <=> asker, l.until_us,
           l.since_us, l.offered, l.crowd, l.waiting, l.sharing, l.asleep, l.ticket, l.served
      INTO @lockfast_fence, @lockfast_client, @lockfast_is_asker, @lockfast_until,
           @lockfast_since, @lockfast_offered, @lockfast_crowd, @lockfast_waiting,
           @lockfast_sharing, @lockfast_asleep, @lockfast_ticket, @lockfast_served
      FROM lockfast_locks l WHERE l.name = lock_name FOR UPDATE;
    IF @lockfast_fence IS NOT NULL THEN
      LEAVE opening;
    END IF;
    -- A row that was swept since this call began had a fence that the floor now knows.
    SELECT s.floor INTO @lockfast_floor FROM lockfast_store s WHERE s.id = 1;
    INSERT INTO lockfast_locks (name, fence, holder, until_us, since_us, crowd)
    VALUES (lock_name, @lockfast_floor, NULL, now_us, 0, 0)
    ON DUPLICATE KEY UPDATE name = lock_name;
  END LOOP;
  IF @lockfast_until <= now_us AND @lockfast_client IS NOT NULL THEN
    SET hung = @lockfast_client, @lockfast_client = NULL, @lockfast_is_asker = 0;
    IF @lockfast_offered THEN
      CALL lockfast_pass_over(lock_name, hung);
    END IF;
    SET @lockfast_offered = 0;
  END IF;
  -- Looked for without locks first, so that nobody waits for rows of others.
  IF @lockfast_crowd > 0 THEN
    SELECT COUNT(*) INTO ended FROM lockfast_claims c FORCE INDEX (lockfast_claims_end)
     WHERE c.name = lock_name AND c.until_us <= now_us;
  END IF;
  IF ended > 0 THEN
    SELECT COUNT(*), COALESCE(SUM(c.stage IN (0, 3)), 0), COALESCE(SUM(c.stage = 1), 0),
           COALESCE(SUM(c.stage = 3), 0), COALESCE(SUM(c.stage = 1 AND c.offered), 0)
      INTO ended, ended_waiting, ended_sharing, ended_asleep, ended_offers
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_end)
     WHERE c.name = lock_name AND c.until_us <= now_us FOR UPDATE;
    IF ended_offers > 0 THEN
      CALL lockfast_pass_over_sharers(lock_name);
    END IF;
    DELETE FROM lockfast_claims WHERE name = lock_name AND until_us <= now_us;
    SET @lockfast_crowd = @lockfast_crowd - ended,
        @lockfast_waiting = @lockfast_waiting - ended_waiting,
        @lockfast_sharing = @lockfast_sharing - ended_sharing,
        @lockfast_asleep = @lockfast_asleep - ended_asleep;
  END IF;
END
