-- Every change ends here: it is made, those whom it concerns are woken, and it is answered.
CREATE PROCEDURE lockfast_end()
  SQL SECURITY INVOKER
BEGIN
  COMMIT AND NO CHAIN NO RELEASE;
  IF @lockfast_wakes <> '' THEN
    WHILE @lockfast_wakes <> '' DO
      CALL lockfast_wake(SUBSTRING(@lockfast_wakes, 2, 12));
      SET @lockfast_wakes = SUBSTRING(@lockfast_wakes, 14);
    END WHILE;
    COMMIT AND NO CHAIN NO RELEASE;
  END IF;
  SELECT @lockfast_now, @lockfast_answers, @lockfast_pushes, @lockfast_deaf;
END
