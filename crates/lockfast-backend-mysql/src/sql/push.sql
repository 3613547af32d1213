-- Something for one client: in the answer if it is the one that asks, otherwise by mail. What is
-- urgent wakes it.
CREATE PROCEDURE lockfast_push(
  IN whom BINARY(6), IN body VARBINARY(4096), IN is_urgent TINYINT)
  SQL SECURITY INVOKER
BEGIN
  IF whom = @lockfast_who THEN
    SET @lockfast_pushes = CONCAT(@lockfast_pushes, body, '\n');
  ELSE
    INSERT INTO lockfast_mail (client, sent_us, body) VALUES (whom, @lockfast_now, body);
    IF is_urgent AND LOCATE(CONCAT(',', HEX(whom)), @lockfast_wakes) = 0 THEN
      SET @lockfast_wakes = CONCAT(@lockfast_wakes, ',', HEX(whom));
    END IF;
  END IF;
END
