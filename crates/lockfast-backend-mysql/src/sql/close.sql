-- Writes down what became of a lock.
CREATE PROCEDURE lockfast_close(IN lock_name VARBINARY(255))
  SQL SECURITY DEFINER
BEGIN
  UPDATE lockfast_locks
     SET fence = @lockfast_fence, holder = @lockfast_holder, until_us = @lockfast_until,
         since_us = @lockfast_since, crowd = @lockfast_crowd
   WHERE name = lock_name;
END
