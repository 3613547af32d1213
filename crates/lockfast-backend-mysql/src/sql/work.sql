-- Many requests in one transaction: renewals [[name, holder, ttl, delay]…], acquisitions
-- [[name, holder, mode, ttl, delay, floor, may_wait]…], releases [[name, holder]…], each in the
-- order of names. The answers to the three follow each other, divided by empty lines.
CREATE PROCEDURE lockfast_work(
  IN who CHAR(12), IN its_link BIGINT, IN renews LONGTEXT CHARACTER SET utf8mb4,
  IN takes LONGTEXT CHARACTER SET utf8mb4, IN gives LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  CALL lockfast_begin(who, its_link);
  IF renews <> '' THEN
    CALL lockfast_renew_all(renews);
  END IF;
  SET @lockfast_answers = CONCAT(@lockfast_answers, '\n');
  IF takes <> '' THEN
    CALL lockfast_take_all(takes);
  END IF;
  SET @lockfast_answers = CONCAT(@lockfast_answers, '\n');
  IF gives <> '' THEN
    CALL lockfast_give_all(gives);
  END IF;
  CALL lockfast_end();
END
