-- Who clients are, for people.
CREATE PROCEDURE lockfast_labels(IN clients LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  SELECT HEX(c.client), c.program, c.host, c.pid, c.text
    FROM JSON_TABLE(clients, '$[*]' COLUMNS (client CHAR(12) CHARACTER SET latin1 PATH '$')) j
    JOIN lockfast_clients c ON c.client = UNHEX(j.client);
END
