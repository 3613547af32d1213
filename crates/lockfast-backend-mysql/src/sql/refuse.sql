-- Ends a call that asks for what cannot be.
CREATE PROCEDURE lockfast_refuse()
  SQL SECURITY INVOKER
BEGIN
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT =
    'lockfast: no such request: see who asks, the name, the holder (it begins with its client), the mode and the times';
END
