-- Every change ends here: it is made, those whom it concerns are woken, and it is answered.
CREATE PROCEDURE lockfast_end()
  SQL SECURITY INVOKER
BEGIN
  COMMIT AND NO CHAIN NO RELEASE;
  IF @lockfast_wakes <> '' THEN
    BEGIN
      -- It is done, whatever keeps somebody from being woken, who then must find out alone.
      DECLARE EXIT HANDLER FOR SQLEXCEPTION SET @lockfast_deaf = 1;
      WHILE @lockfast_wakes <> '' DO
        CALL lockfast_wake(SUBSTRING(@lockfast_wakes, 2, 12));
        SET @lockfast_wakes = SUBSTRING(@lockfast_wakes, 14);
      END WHILE;
    END;
    COMMIT AND NO CHAIN NO RELEASE;
  END IF;
  SELECT @lockfast_now, @lockfast_answers, @lockfast_pushes, @lockfast_deaf;
END
