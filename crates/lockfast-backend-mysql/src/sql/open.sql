-- Locks the row of a lock, makes it if there is none, and ends what has run out.
CREATE PROCEDURE lockfast_open(IN lock_name VARBINARY(255))
  SQL SECURITY DEFINER
BEGIN
  SET @lockfast_fence = NULL;
  SELECT fence, holder, until_us, since_us, crowd
    INTO @lockfast_fence, @lockfast_holder, @lockfast_until, @lockfast_since, @lockfast_crowd
    FROM lockfast_locks WHERE name = lock_name FOR UPDATE;
  IF @lockfast_fence IS NULL THEN
    -- A row that was swept since this call began had a fence that the floor now knows.
    SELECT floor INTO @lockfast_floor FROM lockfast_store WHERE id = 1;
    INSERT INTO lockfast_locks (name, fence, holder, until_us, since_us, crowd)
    VALUES (lock_name, @lockfast_floor, NULL, @lockfast_now, 0, 0)
    ON DUPLICATE KEY UPDATE name = lock_name;
    SELECT fence, holder, until_us, since_us, crowd
      INTO @lockfast_fence, @lockfast_holder, @lockfast_until, @lockfast_since, @lockfast_crowd
      FROM lockfast_locks WHERE name = lock_name FOR UPDATE;
  END IF;
  IF @lockfast_until <= @lockfast_now THEN
    SET @lockfast_holder = NULL;
  END IF;
  IF @lockfast_crowd > 0 THEN
    DELETE FROM lockfast_claims WHERE name = lock_name AND until_us <= @lockfast_now;
    SET @lockfast_crowd = @lockfast_crowd - ROW_COUNT();
  END IF;
END
