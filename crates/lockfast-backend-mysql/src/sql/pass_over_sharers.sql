-- The same for those who were given a share and did not take it in time.
CREATE PROCEDURE lockfast_pass_over_sharers(IN lock_name VARBINARY(255))
  SQL SECURITY INVOKER
BEGIN
  DECLARE hung BINARY(6);
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE clients CURSOR FOR
    SELECT DISTINCT c.client FROM lockfast_claims c
     WHERE c.name = lock_name AND c.until_us <= now_us AND c.stage = 1 AND c.offered;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  OPEN clients;
  FETCH clients INTO hung;
  WHILE NOT is_over DO
    CALL lockfast_pass_over(lock_name, hung);
    FETCH clients INTO hung;
  END WHILE;
  CLOSE clients;
END
