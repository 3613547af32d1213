-- The names of locks that are held or waited for, in the order of their bytes.
CREATE PROCEDURE lockfast_list(
  IN prefix VARBINARY(1024), IN after_name VARBINARY(255), IN at_most INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE now_us BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  SELECT l.name
    FROM lockfast_locks l
   WHERE l.name >= prefix AND l.name > after_name AND LEFT(l.name, LENGTH(prefix)) = prefix
     AND ((l.holder IS NOT NULL AND l.until_us > now_us)
       OR (l.crowd > 0 AND EXISTS (
             SELECT 1 FROM lockfast_claims c
              WHERE c.name = l.name AND c.stage < 2 AND c.until_us > now_us)))
   ORDER BY l.name LIMIT at_most;
END
