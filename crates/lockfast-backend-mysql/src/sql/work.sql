-- Many requests in one transaction: renewals [[name, holder, ttl, delay]…], acquisitions
-- [[name, holder, mode, ttl, delay, floor, may_wait]…], releases [[name, holder]…], each in the
-- order of names, and how many of the latter two. The answers to the three follow each other,
-- divided by empty lines.
CREATE PROCEDURE lockfast_work(
  IN caller CHAR(32), IN renews LONGTEXT CHARACTER SET utf8mb4,
  IN takes LONGTEXT CHARACTER SET utf8mb4, IN take_count INT,
  IN gives LONGTEXT CHARACTER SET utf8mb4, IN give_count INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_begin(caller);
    IF renews <> '' THEN
      CALL lockfast_renew_all(renews);
    END IF;
    SET @lockfast_answers = CONCAT(@lockfast_answers, '\n');
    IF take_count > 0 THEN
      CALL lockfast_take_all(takes, take_count);
    END IF;
    SET @lockfast_answers = CONCAT(@lockfast_answers, '\n');
    IF give_count > 0 THEN
      CALL lockfast_give_all(gives, give_count);
    END IF;
    CALL lockfast_end();
  END;
END
