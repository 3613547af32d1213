-- A client that was passed over is heard again, and its claims wait in their old places.
CREATE PROCEDURE lockfast_awaken(IN lock_name VARBINARY(255))
  SQL SECURITY INVOKER
BEGIN
  DECLARE awake INT;
  DECLARE heard BINARY(6) DEFAULT @lockfast_who;
  DECLARE its_end BIGINT DEFAULT @lockfast_now + 3600000000;
  UPDATE lockfast_claims FORCE INDEX (lockfast_claims_client) SET stage = 0, until_us = its_end
   WHERE name = lock_name AND stage = 3 AND client = heard;
  SET awake = ROW_COUNT();
  IF awake > 0 THEN
    SET @lockfast_asleep = @lockfast_asleep - awake, @lockfast_served = 0;
  END IF;
END
