-- Every change ends here: it is made, those whom it concerns are woken, and it is answered.
CREATE PROCEDURE lockfast_end()
  SQL SECURITY DEFINER
BEGIN
  COMMIT;
  WHILE @lockfast_wakes <> '' DO
    CALL lockfast_wake(SUBSTRING(@lockfast_wakes, 2, 12));
    SET @lockfast_wakes = SUBSTRING(@lockfast_wakes, 14);
  END WHILE;
  SELECT @lockfast_now, @lockfast_answers, @lockfast_pushes, @lockfast_deaf;
END
