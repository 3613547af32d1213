-- Writes down what became of a lock. Who has it alone is another one than before if there is an
-- heir, and nobody if nobody's client has it.
CREATE PROCEDURE lockfast_close(IN lock_name VARBINARY(255), IN heir BINARY(16))
  SQL SECURITY INVOKER
BEGIN
  UPDATE lockfast_locks l
     SET l.fence = @lockfast_fence,
         l.holder = IF(@lockfast_client IS NULL, NULL, COALESCE(heir, l.holder)),
         l.until_us = @lockfast_until, l.since_us = @lockfast_since, l.offered = @lockfast_offered,
         l.crowd = @lockfast_crowd, l.waiting = @lockfast_waiting, l.sharing = @lockfast_sharing,
         l.asleep = @lockfast_asleep, l.ticket = @lockfast_ticket, l.served = @lockfast_served
   WHERE l.name = lock_name;
  -- A statement that somebody interrupts may do nothing and not say so, and what is told must be
  -- written.
  IF ROW_COUNT() <> 1 AND NOT EXISTS (
       SELECT 1 FROM lockfast_locks l
        WHERE l.name = lock_name AND l.fence = @lockfast_fence
          AND LEFT(l.holder, 6) <=> @lockfast_client AND (heir IS NULL OR l.holder = heir)
          AND l.until_us = @lockfast_until AND l.since_us = @lockfast_since
          AND l.offered = @lockfast_offered AND l.crowd = @lockfast_crowd
          AND l.waiting = @lockfast_waiting AND l.sharing = @lockfast_sharing
          AND l.asleep = @lockfast_asleep AND l.ticket = @lockfast_ticket
          AND l.served = @lockfast_served) THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: interrupted';
  END IF;
END
