-- Writes down what became of a lock.
CREATE PROCEDURE lockfast_close(IN lock_name VARBINARY(255))
  SQL SECURITY DEFINER
BEGIN
  UPDATE lockfast_locks
     SET fence = @lockfast_fence, holder = @lockfast_holder, until_us = @lockfast_until,
         since_us = @lockfast_since, crowd = @lockfast_crowd
   WHERE name = lock_name;
  -- A statement that somebody interrupts may do nothing and not say so, and what is told must be
  -- written.
  IF ROW_COUNT() <> 1 AND NOT EXISTS (
       SELECT 1 FROM lockfast_locks
        WHERE name = lock_name AND fence = @lockfast_fence AND holder <=> @lockfast_holder
          AND until_us = @lockfast_until AND since_us = @lockfast_since
          AND crowd = @lockfast_crowd) THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: interrupted';
  END IF;
END
