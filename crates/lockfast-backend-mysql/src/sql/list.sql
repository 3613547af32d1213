-- The names of locks that are held or waited for, in the order of their bytes.
CREATE PROCEDURE lockfast_list(
  IN prefix VARBINARY(1024), IN after_name VARBINARY(255), IN at_most INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE now_us BIGINT;
  CALL lockfast_clock(now_us);
  SELECT l.name
    FROM lockfast_locks l
   WHERE l.name >= prefix AND l.name > after_name AND LEFT(l.name, LENGTH(prefix)) = prefix
     AND ((l.holder IS NOT NULL AND l.until_us > now_us)
       OR (l.crowd > 0 AND EXISTS (
             SELECT 1 FROM lockfast_claims c LEFT JOIN lockfast_clients k ON k.client = c.client
              WHERE c.name = l.name AND c.until_us > now_us
                AND (c.stage = 1 OR (c.stage IN (0, 3) AND k.who IS NOT NULL
                  AND IS_USED_LOCK(CONCAT('lockfast:a:', HEX(k.who))) IS NOT NULL)))))
   ORDER BY l.name LIMIT at_most;
END
